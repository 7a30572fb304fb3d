"""The format of a backup: a line of JSON with the parts' sizes and checksums, then the parts."""

import hashlib
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final

import msgspec

FORM: Final = 1
STORE: Final = "store.sqlite"
RANGES: Final = "ranges.json"
MAX_HEAD_BYTES: Final = 64 << 10
_PIECE: Final = 1 << 20
PKI: Final = re.compile(r"pki/[a-z][a-z-]{0,40}(\.[a-z]{1,4})?")


class BackupError(Exception):
    """A backup that cannot be made or used; the message says which, why, and what to do."""


class Part(msgspec.Struct, forbid_unknown_fields=True):
    """One file of a backup."""

    name: str
    bytes: int
    sha256: str


class Head(msgspec.Struct, forbid_unknown_fields=True):
    """The first line: version of corral, time of the backup, revision and parts."""

    form: int = msgspec.field(name="corral-backup")
    corral: str
    made: str
    revision: int
    parts: list[Part]


def part_of(name: str, path: Path) -> Part:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(_PIECE):
            digest.update(piece)
        return Part(name, file.tell(), digest.hexdigest())


def write(target: Path, head: Head, contents: list[Path]) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    with os.fdopen(os.open(target, flags, 0o600), "wb") as file:
        file.write(msgspec.json.encode(head) + b"\n")
        for part, path in zip(head.parts, contents, strict=True):
            with path.open("rb") as content:
                _copy(content, file, part, path)
        file.flush()
        os.fsync(file.fileno())


def _copy(source: BinaryIO, target: BinaryIO, part: Part, path: Path) -> None:
    """Copy a part and verify its size and checksum.  Raises BackupError."""
    digest, left = hashlib.sha256(), part.bytes
    while left and (piece := source.read(min(left, _PIECE))):
        digest.update(piece)
        target.write(piece)
        left -= len(piece)
    if left or digest.hexdigest() != part.sha256:
        raise BackupError(f"{path}: {part.name} is damaged, or has changed meanwhile")


@contextmanager
def opened(source: Path) -> Iterator[tuple[BinaryIO, Head]]:
    with source.open("rb") as file:
        head = _head(file)
        if head is None:
            raise BackupError(f"{source} is no backup that corral has made")
        if fault := _fault(head, os.fstat(file.fileno()).st_size - file.tell()):
            raise BackupError(f"{source}: {fault}")
        yield file, head


def _head(file: BinaryIO) -> Head | None:
    try:
        return msgspec.json.decode(file.readline(MAX_HEAD_BYTES), type=Head)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def _fault(head: Head, size: int) -> str:
    """Return what is wrong with the head of a backup, or with its size; "" if nothing is."""
    names = [part.name for part in head.parts]
    if head.form != FORM:
        return f"it has form {head.form}, and this version reads {FORM}: use corral {head.corral}"
    unknown = [each for each in names if each not in (STORE, RANGES) and not PKI.fullmatch(each)]
    if unknown or len(set(names)) != len(names) or STORE not in names:
        return f"it is no backup of corral: it holds {', '.join(names) or 'nothing'}"
    if any(part.bytes < 0 for part in head.parts) or head.revision < 0:
        return "it is damaged: a size is below zero"
    if size != (expected := sum(part.bytes for part in head.parts)):
        return f"it is damaged: it should hold {expected} bytes, and holds {size}"
    return ""


def unpack(source: Path, file: BinaryIO, head: Head, room: Path) -> None:
    """Write the parts into a directory, and verify each.  Raises BackupError."""
    (room / "pki").mkdir(mode=0o700)
    for part in head.parts:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        with os.fdopen(os.open(room / part.name, flags, 0o600), "wb") as target:
            _copy(file, target, part, source)
            target.flush()
            os.fsync(target.fileno())
    if not any((room / "pki").iterdir()):
        (room / "pki").rmdir()


def is_other(target: Path) -> bool:
    if not target.is_file():
        return True
    with target.open("rb") as file:
        return _head(file) is None
