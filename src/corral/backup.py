"""Backups: the store as it was at one moment, and what makes its users find it again.

A file begins with a line of JSON that says what follows, with sizes and checksums; then come the
files themselves, one behind the other.  In it are all objects, secrets among them, certificates
and keys (``pki/``), and which addresses are given (``ranges.json``).  Disks are not: those of
claims lie in ``storage/``, those of machines below ``nodes/``, and images can be had again.
"""

import hashlib
import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from time import time
from typing import BinaryIO, Final

import msgspec

from corral import __version__, files, manager
from corral.api import revocation
from corral.api.encoding import encode
from corral.api.errors import ApiError
from corral.api.object import Document
from corral.api.time import rfc3339
from corral.config import Layout
from corral.server import revocations
from corral.store import Log, LogError, offline, wal
from corral.store.offline import Mended as Mended  # noqa: PLC0414 (said to callers)
from corral.store.row import Row

FORM: Final = 1
STORE: Final = "store.sqlite"
RANGES: Final = "ranges.json"
JUMP: Final = 1_000_000
"""How far ahead of all that was ever given a restored store begins: whoever saw more than the
backup holds must not take something new for something known."""
LARGEST_HEAD: Final = 64 << 10
_PIECE: Final = 1 << 20
_ROOM: Final = ".restore-"
"""How the directory's name begins in which a restore unpacks what it is to put in place."""
_NOTE: Final = "placed"
"""The file in it that names what was to be put beside the store, which comes last."""
_MAPS: Final = "configmaps"
_PKI: Final = re.compile(r"pki/[a-z][a-z-]{0,40}(\.[a-z]{1,4})?")


class BackupError(Exception):
    """A backup that cannot be made or used; the message says which, why, and what to do."""


class Part(msgspec.Struct, forbid_unknown_fields=True):
    """One file of a backup."""

    name: str
    bytes: int
    sha256: str


class Head(msgspec.Struct, forbid_unknown_fields=True):
    """What a backup is: when and by which corral it was made, up to which revision, and of what."""

    form: int = msgspec.field(name="corral-backup")
    corral: str
    made: str
    revision: int
    parts: list[Part]


@dataclass(frozen=True, slots=True)
class Restored:
    """What has come of a backup: how many objects there are, and what was there and stays."""

    head: Head
    objects: int
    kept: tuple[str, ...]
    before: Path | None
    """Where the store is that was there before."""
    revoked: tuple[str, ...]
    """Users whose certificates the backup did not know to be revoked: they still are."""


def make(layout: Layout, target: Path, warn: Callable[[str], object] | None = None) -> Head:
    """Write a backup of a data directory, whether or not a manager runs there.

    The target is replaced as a whole, and only if it is a backup itself.  ``warn`` is told of
    damage that was found and mended.  Raises BackupError, and OSError where there is no room.
    """
    if not layout.store.exists():
        raise BackupError(f"there is no store in {layout.root}: corral up makes one")
    if target.exists() and _is_other(target):
        raise BackupError(f"{target} is something else than a backup. Choose another name.")
    with TemporaryDirectory(prefix=f".{target.name}.", dir=target.parent) as room:
        store = Path(room) / STORE
        if (mended := _mend_log(layout)) and warn is not None:
            warn(mended)
        try:
            offline.copy(layout.store, store)
            offline.check(store)
            revision = offline.newest(store)
        except LogError as error:
            raise BackupError(str(error)) from error
        parts = {STORE: store, **_beside(layout)}
        head = Head(
            form=FORM,
            corral=__version__,
            made=rfc3339(time()),
            revision=revision,
            parts=[_part(name, path) for name, path in parts.items()],
        )
        written = Path(room) / "backup"
        _write(written, head, list(parts.values()))
        written.replace(target)
        files.sync_directory(target.parent)
    return head


def check(source: Path) -> Head:
    """Read a whole backup.  Raises BackupError for one that is damaged or foreign, and OSError."""
    with TemporaryDirectory(prefix="corral-backup-") as room:
        with _opened(source) as (file, head):
            _unpack(source, file, head, Path(room))
        _check_store(Path(room) / STORE)
    return head


def restore(layout: Layout, source: Path) -> Restored:
    """Put a backup in the place of a data directory's store; nobody may have that open.

    The store that was there is kept beside.  Certificates, keys and addresses are taken from the
    backup only where there are none.  Nothing changes unless the whole backup is good.  Raises
    BackupError, and OSError where there is no room.
    """
    layout.root.mkdir(mode=0o700, parents=True, exist_ok=True)
    sweep(layout)
    with _opened(source) as (file, head), _made_room(layout) as room:
        _unpack(source, file, head, room)
        _check_store(room / STORE)
        try:
            known, revoked = 0, tuple[str, ...]()
            if layout.store.exists():
                known = _settled(layout.store)
                revoked = _carry_revocations(layout.store, room / STORE)
            count = offline.begin_at(room / STORE, max(known, head.revision) + JUMP)
        except (LogError, ApiError, msgspec.DecodeError) as error:
            raise BackupError(str(error)) from error
        kept = _put_beside(layout, room)
        before = _put_store(layout, room / STORE)
    sweep(layout)
    return Restored(head, count, kept, before, revoked)


def mend(layout: Layout, source: Path) -> Mended:
    """Put objects of a backup in the place of those that are damaged; nobody may use the store.

    All others stay as they are.  Raises BackupError, and OSError where there is no room.
    """
    if not layout.store.exists():
        raise BackupError(f"there is no store in {layout.root}: restore all of the backup")
    with _opened(source) as (file, head), TemporaryDirectory(dir=layout.root) as room:
        _unpack(source, file, head, Path(room))
        _check_store(Path(room) / STORE)
        try:
            return offline.mend(layout.store, Path(room) / STORE)
        except (LogError, ApiError) as error:
            raise BackupError(str(error)) from error


def sweep(layout: Layout) -> bool:
    """Undo restores that were cut in a data directory, which nobody else may use.

    False where there is no store: what they have unpacked stays then, and tells that objects are
    missing.  What cannot be removed is left to the next time.  Raises OSError where certificates
    or addresses of a backup cannot be taken back.
    """
    rooms = []
    for each in layout.root.glob(f"{_ROOM}*"):
        if each.is_dir() and not each.is_symlink():
            _take_back(layout, each)
            rooms.append(each)
        else:
            with suppress(OSError):
                each.unlink()
    if rooms and not layout.store.exists():
        return False
    for room in rooms:
        shutil.rmtree(room, ignore_errors=True)
    return True


# ----------------------------------------------------------------- the parts


@contextmanager
def _made_room(layout: Layout) -> Iterator[Path]:
    """A directory for what is unpacked; in the end it goes, with all that did not get in place."""
    room = Path(mkdtemp(prefix=_ROOM, dir=layout.root))
    try:
        yield room
    finally:
        _take_back(layout, room)
        shutil.rmtree(room, ignore_errors=True)


def _beside(layout: Layout) -> dict[str, Path]:
    """What is kept beside the store."""
    found = {f"pki/{path.name}": path for path in sorted(layout.pki.glob("*")) if path.is_file()}
    known = {name: path for name, path in found.items() if _PKI.fullmatch(name)}
    return known | ({RANGES: layout.ranges} if layout.ranges.exists() else {})


def _places(layout: Layout) -> dict[str, Path]:
    """Where that is, by its name in the directory of a restore."""
    return {"pki": layout.pki, RANGES: layout.ranges}


def _put_beside(layout: Layout, room: Path) -> tuple[str, ...]:
    """Put certificates and addresses where none are, and answer what stays as it was.

    It is noted before: without the store none of them may stay.
    """
    places = _places(layout)
    kept = tuple(name for name, place in places.items() if place.exists())
    placed = [name for name in places if name not in kept and (room / name).exists()]
    (room / _NOTE).write_bytes(msgspec.json.encode(placed))
    files.sync_file(room / _NOTE)
    files.sync_directory(room)
    for name in placed:
        (room / name).rename(places[name])
    files.sync_directory(layout.root)
    return kept


def _take_back(layout: Layout, room: Path) -> None:
    """Undo what ``_put_beside`` has done for a store that did not get into its place."""
    if not (room / STORE).exists():
        return
    noted = files.read_json(room / _NOTE, list[str]) or ()
    for name, place in _places(layout).items():
        if name in noted and place.exists() and not (room / name).exists():
            place.rename(room / name)
    (room / _NOTE).unlink(missing_ok=True)  # what is put there from now on is not of this backup


def _put_store(layout: Layout, unpacked: Path) -> Path | None:
    """Put a store in place; the one that was there is kept beside, and at no time is there none."""
    before = layout.store.with_name(f"{layout.store.name}.before-restore")
    files.sync_file(unpacked)
    present = layout.store.exists()
    if present:
        kept = unpacked.with_name(before.name)
        kept.hardlink_to(layout.store)
        kept.rename(before)  # an earlier one goes when nothing is left that may fail
    unpacked.replace(layout.store)
    files.sync_directory(layout.root)
    return before if present else None


def _mend_log(layout: Layout) -> str:
    """Keep what a killed manager has written after a place that is damaged since; as ``wal.mend``.

    SQLite drops that for good as soon as anybody opens the store.
    """
    if wal.is_left(layout.store):  # else nobody need be kept from starting
        with suppress(manager.AlreadyRunning), manager.hold(layout.lock, url=""):
            return wal.mend(layout.store)
    return ""


def _settled(store: Path) -> int:
    """The newest revision of a store that nobody has open, and that is in its one file now.

    What would be left beside it would be played into the store that takes its place.
    """
    try:
        wal.mend(store)
        offline.settle(store)
        return offline.newest(store)
    except LogError as error:
        raise BackupError(f"{error}. Move it away, with its -wal and -shm.") from error


def _carry_revocations(before: Path, restored: Path) -> tuple[str, ...]:
    """Let no certificate be good again that was revoked; the users whom the backup let in.

    What signs certificates stays the same: only the store knows which of them are good.
    """
    earlier = _map(before)
    if earlier is None:
        return ()
    document = _map(restored) or earlier | {"data": {}}
    revoked = revocations.united(document, earlier)
    if revoked:
        revision = offline.newest(restored) + 1
        document["metadata"]["resourceVersion"] = str(revision)
        row = Row(
            revision,
            _MAPS,
            *revocation.MAP,
            deleted=False,
            written=int(time()),
            data=encode(document),
        )
        log = Log(restored)
        try:
            log.append([row], (), 0)
        finally:
            log.close()
    return tuple(revoked)


def _map(store: Path) -> Document | None:
    """Which certificates are revoked, as a store knows it."""
    data = offline.latest(store, _MAPS, *revocation.MAP)
    return None if data is None else msgspec.json.decode(data)


# ------------------------------------------------------------------ the file


def _part(name: str, path: Path) -> Part:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(_PIECE):
            digest.update(piece)
        return Part(name, file.tell(), digest.hexdigest())


def _write(target: Path, head: Head, contents: list[Path]) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    with os.fdopen(os.open(target, flags, 0o600), "wb") as file:
        file.write(msgspec.json.encode(head) + b"\n")
        for part, path in zip(head.parts, contents, strict=True):
            with path.open("rb") as content:
                _copy(content, file, part, path)
        file.flush()
        os.fsync(file.fileno())


def _copy(source: BinaryIO, target: BinaryIO, part: Part, told: Path) -> None:
    """Copy a part, which has to be what its head says."""
    digest, left = hashlib.sha256(), part.bytes
    while left and (piece := source.read(min(left, _PIECE))):
        digest.update(piece)
        target.write(piece)
        left -= len(piece)
    if left or digest.hexdigest() != part.sha256:
        raise BackupError(f"{told}: {part.name} is damaged, or has changed meanwhile")


@contextmanager
def _opened(source: Path) -> Iterator[tuple[BinaryIO, Head]]:
    with source.open("rb") as file:
        head = _head(file)
        if head is None:
            raise BackupError(f"{source} is no backup that corral has made")
        if fault := _fault(head, os.fstat(file.fileno()).st_size - file.tell()):
            raise BackupError(f"{source}: {fault}")
        yield file, head


def _head(file: BinaryIO) -> Head | None:
    try:
        return msgspec.json.decode(file.readline(LARGEST_HEAD), type=Head)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def _fault(head: Head, size: int) -> str:
    """What is wrong with a backup by its head and its size; empty where nothing is."""
    names = [part.name for part in head.parts]
    if head.form != FORM:
        return f"it has form {head.form}, and this version reads {FORM}: use corral {head.corral}"
    unknown = [each for each in names if each not in (STORE, RANGES) and not _PKI.fullmatch(each)]
    if unknown or len(set(names)) != len(names) or STORE not in names:
        return f"it is no backup of corral: it holds {', '.join(names) or 'nothing'}"
    if any(part.bytes < 0 for part in head.parts) or head.revision < 0:
        return "it is damaged: a size is below zero"
    if size != (wanted := sum(part.bytes for part in head.parts)):
        return f"it is damaged: it should hold {wanted} bytes, and holds {size}"
    return ""


def _unpack(source: Path, file: BinaryIO, head: Head, room: Path) -> None:
    """Put the parts into a directory, each if it is whole."""
    (room / "pki").mkdir(mode=0o700)
    for part in head.parts:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        with os.fdopen(os.open(room / part.name, flags, 0o600), "wb") as target:
            _copy(file, target, part, source)
            target.flush()
            os.fsync(target.fileno())
    if not any((room / "pki").iterdir()):
        (room / "pki").rmdir()


def _check_store(path: Path) -> None:
    try:
        offline.check(path)
    except LogError as error:
        raise BackupError(f"the store in the backup cannot be used: {error}") from error


def _is_other(target: Path) -> bool:
    if not target.is_file():
        return True
    with target.open("rb") as file:
        return _head(file) is None
