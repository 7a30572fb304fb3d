"""Backups: a snapshot of the store, with the keys and address ranges that clients depend on.

A backup contains all objects, Secrets included, certificates and keys (``pki/``) and the CIDRs
(``ranges.json``).  It contains no disks: volumes of claims are in ``storage/``, those of machines
below ``nodes/``, and images can be pulled again.
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
"""Jump of a restored store's revision ahead of every revision given out before: a client that
saw later revisions than the backup's must not take new objects for ones that it has cached."""
_ROOM: Final = ".restore-"
"""Prefix of the directory in which a restore unpacks a backup."""
_NOTE: Final = "placed"
"""The file in it that names the files moved beside the store before the store itself."""
_MAPS: Final = "configmaps"


@dataclass(frozen=True, slots=True)
class Restored:
    """The result of a restore: the number of objects, and the files that were kept as they were."""

    head: Head
    objects: int
    kept: tuple[str, ...]
    before: Path | None
    """The path of the previous store."""
    revoked: tuple[str, ...]
    """Users whose certificates were revoked after the backup; they stay revoked."""


def make(layout: Layout, target: Path, warn: Callable[[str], object] | None = None) -> Head:
    """Write a backup of a data directory, whether or not a manager runs there.

    The target is replaced atomically, and only if it is a backup.  ``warn`` gets a message about
    damage that was repaired.  Raises BackupError, and OSError on a full disk.
    """
    if not layout.store.exists():
        raise BackupError(f"there is no store in {layout.root}: corral up makes one")
    if target.exists() and is_other(target):
        raise BackupError(f"{target} is something else than a backup. Choose another name.")
    with TemporaryDirectory(prefix=f".{target.name}.", dir=target.parent) as room:
        store = Path(room) / STORE
        if (repair := _repair_log(layout)) and warn is not None:
            warn(repair)
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
    """Replace the store of a data directory by a backup; no process may have the store open.

    The previous store is kept beside it.  Certificates, keys and CIDRs of the backup are used only
    if there are none.  Nothing changes unless the whole backup is valid.  Raises BackupError, and
    OSError on a full disk.
    """
    layout.root.mkdir(mode=0o700, parents=True, exist_ok=True)
    sweep(layout)
    with opened(source) as (file, head), _made_room(layout) as room:
        unpack(source, file, head, room)
        _check_store(room / STORE)
        try:
            newest, revoked = 0, tuple[str, ...]()
            if layout.store.exists():
                newest = _checkpointed_revision(layout.store)
                revoked = _carry_revocations(layout.store, room / STORE)
            count = offline.begin_at(room / STORE, max(newest, head.revision) + JUMP)
        except (LogError, ApiError, msgspec.DecodeError) as error:
            raise BackupError(str(error)) from error
        kept = _put_beside(layout, room)
        before = _put_store(layout, room / STORE)
    sweep(layout)
    return Restored(head, count, kept, before, revoked)


def restore_damaged(layout: Layout, source: Path) -> RestoreResult:
    """Replace the damaged objects of a store by those of a backup; no process may use the store.

    All other objects stay as they are.  Raises BackupError, and OSError on a full disk.
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
    """Undo interrupted restores in a data directory that no other process uses.

    Return False if there is no store: the unpacked files stay as a sign that objects are missing.
    Files that cannot be removed are left to the next call.  Raises OSError if certificates or CIDRs
    of a backup cannot be moved back.
    """
    rooms = []
    for each in layout.root.glob(f"{_ROOM}*"):
        if each.is_dir() and not each.is_symlink():
            _move_back(layout, each)
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
    """Yield a directory for the unpacked files; it is removed in the end, with unused files."""
    room = Path(mkdtemp(prefix=_ROOM, dir=layout.root))
    try:
        yield room
    finally:
        _move_back(layout, room)
        shutil.rmtree(room, ignore_errors=True)


def _beside(layout: Layout) -> dict[str, Path]:
    """Return the files beside the store, by their names in a backup."""
    found = {f"pki/{path.name}": path for path in sorted(layout.pki.glob("*")) if path.is_file()}
    pki_files = {name: path for name, path in found.items() if PKI.fullmatch(name)}
    return pki_files | ({RANGES: layout.ranges} if layout.ranges.exists() else {})


def _places(layout: Layout) -> dict[str, Path]:
    """Return the target paths, by the names in the directory of a restore."""
    return {"pki": layout.pki, RANGES: layout.ranges}


def _put_beside(layout: Layout, room: Path) -> tuple[str, ...]:
    """Move certificates and CIDRs into place where there are none; return the names that were kept.

    The note is written first: if the store does not follow, ``_move_back`` undoes the moves.
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


def _move_back(layout: Layout, room: Path) -> None:
    """Undo ``_put_beside`` for a store that was not moved into place."""
    if not (room / STORE).exists():
        return
    noted = files.read_json(room / _NOTE, list[str]) or ()
    for name, place in _places(layout).items():
        if name in noted and place.exists() and not (room / name).exists():
            place.rename(room / name)
    (room / _NOTE).unlink(missing_ok=True)  # later files are not of this backup


def _put_store(layout: Layout, unpacked: Path) -> Path | None:
    """Move a store into place and keep the previous one; at no moment is there no store."""
    before = layout.store.with_name(f"{layout.store.name}.before-restore")
    files.sync_file(unpacked)
    present = layout.store.exists()
    if present:
        kept = unpacked.with_name(before.name)
        kept.hardlink_to(layout.store)
        kept.rename(
            before
        )  # replaces the one of an earlier restore, when nothing can fail any more
    unpacked.replace(layout.store)
    files.sync_directory(layout.root)
    return before if present else None


def _repair_log(layout: Layout) -> str:
    """Repair the write-ahead log that a killed manager left, as ``wal.repair``; return a message.

    SQLite discards the damaged part for good when any process opens the store.
    """
    if wal.exists(layout.store):  # without a log no start has to be blocked
        with suppress(lock.AlreadyRunning), lock.acquire(layout.lock, url=""):
            return wal.repair(layout.store)
    return ""


def _checkpointed_revision(store: Path) -> int:
    """Move the write-ahead log of a store into its file; return its newest revision.

    A log left beside the file would be replayed into the store that replaces it.
    """
    try:
        wal.repair(store)
        offline.checkpoint(store)
        return offline.newest(store)
    except LogError as error:
        raise BackupError(f"{error}. Move it away, with its -wal and -shm.") from error


def _carry_revocations(before: Path, restored: Path) -> tuple[str, ...]:
    """Keep revoked certificates revoked; return the users that the backup would have let in again.

    The CA stays the same, so only the store knows which of its certificates are revoked.
    """
    earlier = _map(before)
    if earlier is None:
        return ()
    document = _map(restored) or earlier | {"data": {}}
    revoked = revocations.merge(document, earlier)
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
    """Return the ConfigMap of revoked certificates in a store; None if there is none."""
    data = offline.latest(store, _MAPS, *revocation.MAP)
    return None if data is None else msgspec.json.decode(data)


def _check_store(path: Path) -> None:
    try:
        offline.check(path)
    except LogError as error:
        raise BackupError(f"the store in the backup cannot be used: {error}") from error
