"""The files of the page, as they are built from ``/dashboard`` of the repository.

They hold no data: what the page shows it reads from the API, with the rights of its user.  So
everybody may read them, and they are the same for all.
"""

import gzip
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import structlog

from corral.api.request import Request, Response
from corral.server.response.compression import accepts_gzip
from corral.server.response.plain_text import not_found, text_response

PREFIX: Final = "/dashboard"
DIRECTORY: Final = Path(__file__).parent / "page"
INDEX: Final = "index.html"
_ASSETS: Final = "assets/"
_MIN_GZIP_BYTES: Final = 1 << 10

_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "font-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
SECURITY_HEADERS: Final = (
    ("content-security-policy", _POLICY),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
    ("permissions-policy", "camera=(), geolocation=(), microphone=(), payment=(), usb=()"),
    ("referrer-policy", "no-referrer"),
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "DENY"),
)
"""Nothing but this server's own files may run in the page, and no other page may frame it."""

_MEDIA_TYPES: Final = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".ttf": "font/ttf",
    ".txt": "text/plain; charset=utf-8",
    ".woff2": "font/woff2",
}
_COMPRESSED_ALREADY: Final = (".png", ".woff2")

_NOT_BUILT: Final = (
    "This corral has no dashboard: its page was not built when it was installed, which needs "
    "node 20 or newer with npm, and their registry.\n"
    "In a checkout, python3 tools/page_build.py builds it; else install corral anew: "
    "pip install --force-reinstall --no-deps corral\n"
)

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class File:
    """A file of the page, with its encodings."""

    body: bytes
    gzipped: bytes | None
    tag: str
    headers: tuple[tuple[str, str], ...]

    def answer(self, request: Request) -> Response:
        """Return the file, or 304 if the client has it."""
        headers = [("etag", self.tag), ("vary", "Accept-Encoding"), *self.headers]
        if self.tag in request.headers.get("if-none-match", "").split(", "):
            return Response(status=304, headers=headers)
        if self.gzipped is not None and accepts_gzip(request.headers.get("accept-encoding", "")):
            headers.append(("content-encoding", "gzip"))
            return Response(headers=headers, body=self.gzipped)
        return Response(headers=headers, body=self.body)


class Page:
    """Serves the files of a directory, from memory; they are read anew when the page is rebuilt."""

    def __init__(self, directory: Path = DIRECTORY) -> None:
        self._directory = directory
        self._read_at = 0.0
        self._files: Mapping[str, File] = {}

    def answer(self, request: Request) -> Response | None:
        """Return a file of the page; None for paths that are not below it."""
        path = request.path
        if path == PREFIX and request.method in ("GET", "HEAD"):
            # Relative, as a proxy may serve this API below a path of its own.
            return Response(status=308, headers=[("location", "dashboard/"), *SECURITY_HEADERS])
        if not path.startswith(f"{PREFIX}/") or request.method not in ("GET", "HEAD"):
            return None
        name = path.removeprefix(f"{PREFIX}/") or INDEX
        if name == INDEX:
            self._refresh()
        file = self._files.get(name)
        if file is not None:
            return file.answer(request)
        return text_response(_NOT_BUILT, status=404) if name == INDEX else not_found()

    def _refresh(self) -> None:
        """Read the files if their index is another than before; without one there is no page."""
        try:
            built_at = (self._directory / INDEX).stat().st_mtime
            if built_at != self._read_at:
                self._files = {**self._files, **_read(self._directory)}
                self._read_at = built_at
        except FileNotFoundError:
            self._files, self._read_at = {}, 0.0
        except OSError as error:
            log.warning("the dashboard's page cannot be read", reason=str(error))


def _read(directory: Path) -> Mapping[str, File]:
    """Read all files of a directory.  Raises OSError.

    Requests are looked up in the result, so none reaches another file, whatever its path.
    """
    return {
        file.relative_to(directory).as_posix(): _file(file, directory)
        for file in directory.rglob("*")
        if file.suffix in _MEDIA_TYPES and file.is_file()
    }


def _file(file: Path, directory: Path) -> File:
    body = file.read_bytes()
    is_asset = file.relative_to(directory).as_posix().startswith(_ASSETS)
    # The name of an asset has the hash of its content.
    caching = "public, max-age=31536000, immutable" if is_asset else "no-cache"
    gzipped = None
    if len(body) >= _MIN_GZIP_BYTES and file.suffix not in _COMPRESSED_ALREADY:
        gzipped = gzip.compress(body, mtime=0)
    return File(
        body=body,
        gzipped=gzipped,
        tag=f'"{hashlib.sha256(body).hexdigest()[:32]}"',
        headers=(
            ("content-type", _MEDIA_TYPES[file.suffix]),
            ("cache-control", caching),
            *SECURITY_HEADERS,
        ),
    )
