"""Backups: the store as it was at one moment, and what makes its users find it again.

In one are all objects, secrets among them, certificates and keys (``pki/``), and which addresses
are given (``ranges.json``).  Disks are not: those of claims lie in ``storage/``, those of machines
below ``nodes/``, and images can be had again.
"""

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from time import time
from typing import Final

import msgspec

from corral import __version__, files
from corral.api import revocation
from corral.api.encoding import encode
from corral.api.errors import ApiError
from corral.api.object import Document
from corral.api.time import rfc3339
from corral.config import Layout
from corral.daemon import lock
from corral.daemon.backup.archive import (
    FORM,
    PKI,
    RANGES,
    STORE,
    BackupError,
    Head,
    is_other,
    opened,
    part_of,
    unpack,
    write,
)
from corral.server.authn import revocations
from corral.store import Log, LogError, offline, wal
from corral.store.offline import RestoreResult
from corral.store.row import Row

JUMP: Final = 1_000_000
"""How far ahead of all that was ever given a restored store begins: whoever saw more than the
backup holds must not take something new for something known."""
_ROOM: Final = ".restore-"
"""How the directory's name begins in which a restore unpacks what it is to put in place."""
_NOTE: Final = "placed"
"""The file in it that names what was to be put beside the store, which comes last."""
_MAPS: Final = "configmaps"


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
    if target.exists() and is_other(target):
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
            parts=[part_of(name, path) for name, path in parts.items()],
        )
        written = Path(room) / "backup"
        write(written, head, list(parts.values()))
        written.replace(target)
        files.sync_directory(target.parent)
    return head


def check(source: Path) -> Head:
    """Read a whole backup.  Raises BackupError for one that is damaged or foreign, and OSError."""
    with TemporaryDirectory(prefix="corral-backup-") as room:
        with opened(source) as (file, head):
            unpack(source, file, head, Path(room))
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
    with opened(source) as (file, head), _made_room(layout) as room:
        unpack(source, file, head, room)
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


def mend(layout: Layout, source: Path) -> RestoreResult:
    """Put objects of a backup in the place of those that are damaged; nobody may use the store.

    All others stay as they are.  Raises BackupError, and OSError where there is no room.
    """
    if not layout.store.exists():
        raise BackupError(f"there is no store in {layout.root}: restore all of the backup")
    with opened(source) as (file, head), TemporaryDirectory(dir=layout.root) as room:
        unpack(source, file, head, Path(room))
        _check_store(Path(room) / STORE)
        try:
            return offline.restore_damaged(layout.store, Path(room) / STORE)
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
    known = {name: path for name, path in found.items() if PKI.fullmatch(name)}
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
    """Repair the write-ahead log that a killed manager left, as ``wal.repair``; return a message.

    SQLite drops that for good as soon as anybody opens the store.
    """
    if wal.exists(layout.store):  # else nobody need be kept from starting
        with suppress(lock.AlreadyRunning), lock.acquire(layout.lock, url=""):
            return wal.repair(layout.store)
    return ""


def _settled(store: Path) -> int:
    """The newest revision of a store that nobody has open, and that is in its one file now.

    What would be left beside it would be played into the store that takes its place.
    """
    try:
        wal.repair(store)
        offline.checkpoint(store)
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


def _check_store(path: Path) -> None:
    try:
        offline.check(path)
    except LogError as error:
        raise BackupError(f"the store in the backup cannot be used: {error}") from error
