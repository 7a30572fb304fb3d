"""Upload of a disk image to a PVC through CDI's upload proxy.  Blocking.

By the standard library's client: a file of many gigabytes needs no event loop, and is streamed.
"""

import http.client
import ssl
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import BinaryIO
from urllib.parse import urlsplit

from corral.failures import describe

PATH = "/v1beta1/upload"
ASYNC_PATH = "/v1beta1/upload-async"
_CHUNK_BYTES = 1 << 20
_RESPONSE_SECONDS = 3600.0
"""A server without the asynchronous endpoint responds only when the disk has been converted."""
_MAX_RESPONSE_BYTES = 4096


class UploadError(Exception):
    """An upload that failed; ``str()`` is the server's message, or the connection's error.

    is_transient: whether a retry may succeed.
    """

    def __init__(self, message: str, *, is_transient: bool) -> None:
        self.is_transient = is_transient
        super().__init__(message)


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """An upload proxy, with the upload token."""

    url: str
    token: str = field(repr=False)
    tls: ssl.SSLContext


def upload_path(target: Target) -> str:
    """Return the path to upload to: the asynchronous endpoint if the proxy serves it."""
    try:
        status, _ = _request(target, "HEAD", ASYNC_PATH)
    except (OSError, http.client.HTTPException):
        return PATH
    return ASYNC_PATH if status == http.client.OK else PATH


def send(
    target: Target, path: str, file: BinaryIO, size: int, advance: Callable[[int], None]
) -> None:
    """Send a file; ``advance`` is called with the bytes of each chunk sent.  Raises UploadError."""

    def chunks() -> Iterator[bytes]:
        while chunk := file.read(_CHUNK_BYTES):
            yield chunk
            advance(len(chunk))

    try:
        status, text = _request(target, "POST", path, chunks(), size)
    except (OSError, http.client.HTTPException) as error:
        raise UploadError(describe(error), is_transient=True) from error
    if status != http.client.OK:
        message = f"unexpected return value {status}, {text}"
        raise UploadError(message, is_transient=status >= http.client.INTERNAL_SERVER_ERROR)


def _request(
    target: Target, method: str, path: str, body: Iterator[bytes] | None = None, size: int = 0
) -> tuple[int, str]:
    parts = urlsplit(target.url)
    connection: http.client.HTTPConnection
    if parts.scheme == "http":
        connection = http.client.HTTPConnection(parts.netloc, timeout=_RESPONSE_SECONDS)
    else:
        connection = http.client.HTTPSConnection(
            parts.netloc, timeout=_RESPONSE_SECONDS, context=target.tls
        )
    headers = {
        "Authorization": f"Bearer {target.token}",
        "Content-Type": "application/octet-stream",
    }
    if body is not None:
        headers["Content-Length"] = str(size)
    try:
        try:
            connection.request(method, f"{parts.path.rstrip('/')}{path}", body, headers)
        except (BrokenPipeError, ConnectionResetError):
            if body is None:
                raise
            # A server that refuses an upload responds before all of it was sent: read why.
        response = connection.getresponse()
        return response.status, response.read(_MAX_RESPONSE_BYTES).decode(errors="replace").strip()
    finally:
        connection.close()
