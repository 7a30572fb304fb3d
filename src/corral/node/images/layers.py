"""Extracts the disk from the layers of a container image, without unpacking them.

A layer is a tar file; upper layers override lower ones, and files named ``.wh.…`` are whiteouts
(OCI image specification, layer.md).  KubeVirt requires exactly one file in ``/disk``, or the file
of ``containerDisk.path``.  The tar reader is our own, since tarfile reads headers of any declared
size into memory.

All functions block: call them through ``progress.in_thread``.
"""

import tarfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from corral.node.images.error import ImageError, invalid_disk
from corral.node.images.limits import Limits
from corral.node.images.progress import Meter
from corral.node.images.streams import BLOCK, Stream, write_sparse

DISK_FOLDER = "disk"
_BLOCK_BYTES = 512
_MAX_HEADER_BYTES = 1 << 20
_MAX_PATH = 4096  # PATH_MAX
_MAX_HEADERS = 16
"""Extension headers of one file; three or four are usual."""
_MAX_TOTAL_HEADER_BYTES = 256 << 20
"""Of all extension headers of a layer: parsing takes a second for some megabytes."""
_MAX_NAMES = 10_000
_WHITEOUT = ".wh."
_OPAQUE = ".wh..wh..opq"
_SPARSE = "GNU.sparse."
_PAX_KEYS = (b"path=", b"size=", _SPARSE.encode())
"""Prefixes of the pax records that matter here."""
_MAX_LENGTH_DIGITS = len(f"{_MAX_HEADER_BYTES} ")
_EXTENSION_TYPES = frozenset(
    {
        tarfile.XHDTYPE,
        tarfile.SOLARIS_XHDTYPE,
        tarfile.GNUTYPE_LONGNAME,
        tarfile.XGLTYPE,
        tarfile.GNUTYPE_LONGLINK,
    }
)
"""Headers that extend the header of the next file."""
_REGULAR = (tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.CONTTYPE)


class Entry:
    """A file of a layer; ``chunks`` reads its content once, before the next entry."""

    def __init__(
        self, stream: Stream, header: tarfile.TarInfo, name: str, size: int, *, sparse: bool
    ) -> None:
        self._stream = stream
        self._left = size
        self._padding = -size % _BLOCK_BYTES
        self.name = _clean(name)
        self.sparse = sparse
        self.regular = header.type in _REGULAR
        self.directory = header.type == tarfile.DIRTYPE

    def chunks(self) -> Iterator[bytes]:
        while self._left:
            chunk = self._stream.read(min(BLOCK, self._left))
            if not chunk:
                raise invalid_disk(f"a layer ends in the middle of {self.name!r}")
            self._left -= len(chunk)
            yield chunk

    def skip(self) -> None:
        for _ in self.chunks():
            pass
        self._stream.read(self._padding)


def _clean(name: str) -> str:
    """Return a path relative to the image's root.  Raises ImageError for ``..``."""
    if len(name) > _MAX_PATH:
        raise invalid_disk(f"a layer has a path of {len(name)} characters")
    parts = PurePosixPath(name.lstrip("/")).parts
    if ".." in parts:
        raise invalid_disk(f"a layer names a path outside of the image: {name!r}")
    return "/".join(parts)


def entries(stream: Stream) -> Iterator[Entry]:
    """Yield the files of a layer in order (POSIX ustar and pax, GNU long names)."""
    extended: dict[str, str] = {}
    headers = header_bytes = 0
    while record := stream.read(_BLOCK_BYTES):
        if record == bytes(_BLOCK_BYTES):
            return  # the end-of-archive block; padding follows
        try:
            header = tarfile.TarInfo.frombuf(record, "utf-8", "surrogateescape")
        except tarfile.HeaderError as error:
            raise invalid_disk(f"a layer is not a tar file: {error}") from error
        if header.type in _EXTENSION_TYPES:
            body = _body(stream, header)
            headers, header_bytes = headers + 1, header_bytes + len(body)
            if headers > _MAX_HEADERS or header_bytes > _MAX_TOTAL_HEADER_BYTES:
                raise invalid_disk("a layer has too many extension headers")
            extended |= _extension(header, body)
            continue
        entry = _entry(stream, header, extended)
        yield entry
        entry.skip()
        extended, headers = {}, 0


def _extension(header: tarfile.TarInfo, body: bytes) -> dict[str, str]:
    """Return the fields of an extension header."""
    if header.type in {tarfile.XHDTYPE, tarfile.SOLARIS_XHDTYPE}:
        return _pax(body)
    return {"path": _text(body)} if header.type == tarfile.GNUTYPE_LONGNAME else {}


def _entry(stream: Stream, header: tarfile.TarInfo, extended: dict[str, str]) -> Entry:
    try:
        size = int(extended.get("size", header.size))
    except ValueError:
        size = -1
    if size < 0:
        raise invalid_disk(f"a layer gives {header.name!r} an impossible size")
    content = size if header.type in _REGULAR else 0
    name = extended.get("path", header.name)
    entry = Entry(stream, header, name, content, sparse=_SPARSE in extended)
    if header.type == tarfile.GNUTYPE_SPARSE:  # its stored size is not in the header
        raise _sparse(entry)
    return entry


def _sparse(entry: Entry) -> ImageError:
    return invalid_disk(
        f"{entry.name!r} is stored as a sparse tar member, which no container runtime reads"
    )


def _body(stream: Stream, header: tarfile.TarInfo) -> bytes:
    if not 0 <= header.size <= _MAX_HEADER_BYTES:
        raise invalid_disk(f"a layer has a header of {header.size} bytes")
    body = stream.read(header.size)
    stream.read(-header.size % _BLOCK_BYTES)
    return body


def _text(body: bytes) -> str:
    return body.split(b"\0", 1)[0].decode("utf-8", "surrogateescape")


def _pax(body: bytes) -> dict[str, str]:
    """Parse pax records (``LENGTH KEY=VALUE`` lines); keep the keys that matter here."""
    fields: dict[str, str] = {}
    start = 0
    while start < len(body):
        length = _length(body[start : start + _MAX_LENGTH_DIGITS])
        blank = body.find(b" ", start) + 1
        end = start + length
        if not (length and blank < end <= len(body)):
            raise invalid_disk("a layer has a malformed extended header")
        if body.startswith(_PAX_KEYS, blank):
            key, _, value = body[blank : end - 1].partition(b"=")
            if key in {b"path", b"size"}:
                fields[_text(key)] = _text(value)
            elif key.startswith(_SPARSE.encode()):
                fields[_SPARSE] = ""
        start = end
    return fields


def _length(head: bytes) -> int:
    """Return the decimal length at the start of a record; 0 if malformed."""
    digits, space, _ = head.partition(b" ")
    return int(digits) if space and digits.isdigit() else 0


@dataclass(slots=True)
class _Search:
    """The state of a search through the layers, from the upper to the lower ones.

    leaf: the file's name in the folder; empty for any single file.
    ancestors: the folder and its parents.
    decided: names whose upper entry or whiteout was seen.
    sealed: whether a whiteout hides the folder in all lower layers.
    """

    folder: str
    leaf: str
    ancestors: frozenset[str]
    decided: set[str] = field(default_factory=set)
    sealed: bool = False
    found: str = ""

    @property
    def path(self) -> str:
        return f"/{self.folder}/{self.leaf}".rstrip("/").replace("//", "/")


def _search(path: str) -> _Search:
    clean = _clean(path) or DISK_FOLDER
    folder, _, leaf = clean.rpartition("/") if path else (DISK_FOLDER, "", "")
    parts = folder.split("/") if folder else []
    chain = ["/".join(parts[:count]) for count in range(len(parts) + 1)]
    return _Search(folder, leaf, frozenset(chain))


def find_disk(
    meter: Meter, layers: Sequence[Path], path: str, target: Path, limits: Limits
) -> None:
    """Write the image's disk to ``target``; ``layers`` are tar files, the lowest first.

    Raises ImageError ``InvalidDisk`` for no disk, several, or one that is no regular file.
    """
    search = _search(path)
    for number, layer in reversed(list(enumerate(layers, start=1))):
        with layer.open("rb") as file:
            name = f"layer {number} of {len(layers)}"
            stream = Stream(file, name=name, limits=limits, meter=meter)
            _read_layer(search, stream, target, limits)
        if search.sealed or (search.leaf and search.found):
            break
    if not search.found:
        raise _missing(search)


def _missing(search: _Search) -> ImageError:
    if search.leaf:
        return invalid_disk(
            f"no file {search.path} in the image, no disk present",
            "correct containerDisk.path, or leave it out when the disk is alone in /disk",
        )
    return invalid_disk(
        f"no file found in folder /{search.folder}, no disk present",
        "is this a containerDisk? its disk belongs into /disk",
    )


def _read_layer(search: _Search, stream: Stream, target: Path, limits: Limits) -> None:
    """Search one layer; its whiteouts apply to lower layers only."""
    decided: set[str] = set()
    sealed = False
    for number, entry in enumerate(entries(stream)):
        if number >= limits.files:
            raise invalid_disk(f"a layer has more than {limits.files} files")
        parent, _, name = entry.name.rpartition("/")
        if name == _OPAQUE:
            sealed = sealed or parent in search.ancestors
        elif name.startswith(_WHITEOUT):
            removed = f"{parent}/{name.removeprefix(_WHITEOUT)}".lstrip("/")
            sealed = sealed or removed in search.ancestors
            decided |= _children(search, removed)
        elif entry.name in search.ancestors:
            _check_folder(entry)
        elif visible := _children(search, entry.name) - search.decided:
            decided |= visible
            _extract(search, entry, visible.pop(), target, limits)
        if len(decided) > _MAX_NAMES:
            raise invalid_disk(f"more than {_MAX_NAMES} names in folder /{search.folder}")
    search.decided |= decided
    search.sealed = sealed


def _children(search: _Search, path: str) -> set[str]:
    """Return the name in the searched folder that a path is or lies below; empty if elsewhere."""
    prefix = f"{search.folder}/" if search.folder else ""
    if not path.startswith(prefix):
        return set()
    name = path[len(prefix) :].partition("/")[0]
    return {name} if name and name == (search.leaf or name) else set()


def _check_folder(entry: Entry) -> None:
    if not entry.directory:
        raise invalid_disk(f"/{entry.name} in the image is a link or a file, not a folder")


def _extract(search: _Search, entry: Entry, name: str, target: Path, limits: Limits) -> None:
    if search.found and search.found != name:
        raise invalid_disk(
            f"more than one file found in folder /{search.folder}, only one disk is allowed",
            "name the one to use in containerDisk.path",
        )
    path = f"/{search.folder}/{name}"
    if entry.sparse:
        raise _sparse(entry)
    if not entry.regular or entry.name.rpartition("/")[2] != name:
        raise invalid_disk(f"{path} in the image is not a plain file")
    search.found = name
    write_sparse(target, entry.chunks(), limits, path)
