"""Operations on a store's file: copy, check, restore."""

import os
import sqlite3
from contextlib import closing
from pathlib import Path
from time import time
from typing import NamedTuple

import msgspec

from corral.api.encoding import encode
from corral.store import wal
from corral.store.damage import Damaged, classify, describe_damage
from corral.store.row import Row, is_whole, mismatch
from corral.store.sqlite import UNREADABLE, Log, LogError, expected_statements, statements_of


def copy(source: Path, target: Path) -> None:
    """Copy a consistent snapshot of a store, also while it is written to; compacted.

    The target must not exist.  Raises LogError.
    """
    try:
        with closing(_existing(source)) as reading, closing(_private(target)) as writing:
            # In one step: a consistent snapshot, which concurrent writes never restart.
            reading.backup(writing, pages=-1)
            writing.execute("PRAGMA journal_mode=DELETE")
            writing.execute("VACUUM")
    except (*UNREADABLE, OSError) as error:
        raise LogError(f"{source}: cannot be copied: {error}") from error


def check(path: Path) -> None:
    """Check a whole store from an untrusted source.

    Raises LogError if it is damaged, no store of this version, or has a foreign schema.
    """
    try:
        with closing(_existing(path)) as connection:
            connection.execute("PRAGMA trusted_schema=OFF")
            (version,) = connection.execute("PRAGMA user_version").fetchone()
            statements = statements_of(connection)
            (verdict,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
    except (*UNREADABLE, OSError) as error:
        raise LogError(f"{path}: cannot be read as a store: {error}") from error
    if verdict != "ok":
        raise LogError(f"{path}: is damaged: {verdict}")
    if statements != expected_statements(version):
        raise LogError(f"{path}: is a database, but not corral's")
    log = Log(path)
    try:
        scan = classify(log.rows(strict=True))
    finally:
        log.close()
    if scan.damaged:
        raise LogError(f"{path}: is damaged: {describe_damage(scan.damaged.values())}")
    if scan.floor:
        raise LogError(f"{path}: is damaged: the history up to revision {scan.floor} has gaps")
    for row in scan.whole:
        if row.data and (why := mismatch(row)):
            raise LogError(f"{path}: is damaged: revision {row.revision} {why}")


def is_empty(path: Path) -> bool:
    """Return whether the file is missing, or has no tables; no process may have it open."""
    if wal.exists(path):  # SQLite must not open it before the log is repaired
        return False
    if not path.exists():
        return True
    try:
        with closing(_existing(path)) as connection:
            (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except (*UNREADABLE, OSError):
        return False  # something else: an error when it is opened
    return not tables


def newest(path: Path) -> int:
    """Return the newest revision that a store has assigned.  Raises LogError."""
    try:
        with closing(_existing(path)) as connection:
            (last,) = connection.execute("SELECT coalesce(max(revision), 0) FROM log").fetchone()
            (compacted,) = connection.execute(
                "SELECT value FROM meta WHERE name = 'compacted'"
            ).fetchone()
            return max(int(last), int(compacted))
    except (*UNREADABLE, OSError, TypeError, ValueError) as error:
        raise LogError(f"{path}: cannot be read: {error}") from error


def latest(path: Path, kind: str, namespace: str, name: str) -> bytes | None:
    """Return an object's encoded latest version, or None if it does not exist.

    Raises LogError, also if that version is damaged.
    """
    query = (
        "SELECT * FROM log WHERE kind = ? AND namespace = ? AND name = ?"
        " ORDER BY revision DESC LIMIT 1"
    )
    try:
        with closing(_existing(path)) as connection:
            scan = connection.execute(query, (kind, namespace, name)).fetchone()
    except UNREADABLE as error:
        raise LogError(f"{path}: cannot be read: {error}") from error
    if scan is None:
        return None
    row, stored = Row._make(scan[: len(Row._fields)]), scan[len(Row._fields) :]
    if stored and not is_whole(row, *stored):  # schema 1 has no checksums
        raise LogError(f"{path}: is damaged: {kind} {namespace}/{name} cannot be read")
    return None if row.deleted else row.data


def begin_at(path: Path, revision: int) -> int:
    """Compact a store to a later revision, without history; return the count of its objects.

    Watches from before that get Gone and list again.  All or nothing.  Raises LogError.
    """
    try:
        with closing(_existing(path)) as connection:
            connection.execute("PRAGMA journal_mode=DELETE")
            connection.execute("PRAGMA synchronous=FULL")
            connection.execute("BEGIN IMMEDIATE")
            connection.execute(
                "DELETE FROM log WHERE deleted OR revision NOT IN"
                " (SELECT max(revision) FROM log GROUP BY kind, namespace, name)"
            )
            connection.execute("UPDATE meta SET value = ? WHERE name = 'compacted'", (revision,))
            (count,) = connection.execute("SELECT count(*) FROM log").fetchone()
            connection.execute("COMMIT")
            return int(count)
    except (*UNREADABLE, OSError) as error:
        raise LogError(f"{path}: cannot be changed: {error}") from error


class RestoreResult(NamedTuple):
    """The damaged objects of a store: those restored, and those missing in the backup."""

    restored: tuple[Damaged, ...]
    missing: tuple[Damaged, ...]


def restore_damaged(path: Path, source: Path) -> RestoreResult:
    """Restore damaged objects from another store, all or none; intact objects stay.

    No process may have either open.  Raises LogError, and ApiError if nothing could be written.
    """
    log = Log(path)
    try:
        damaged = classify(log.rows()).damaged.values()
        replacements = {each: latest(source, each.kind, *each.key) for each in damaged}
        first = newest(path) + 1
        restored = {each: data for each, data in replacements.items() if data is not None}
        rows = [
            _restored_row(each, data, revision)
            for revision, (each, data) in enumerate(restored.items(), first)
        ]
        gone = [revision for each in restored for revision in each.revisions]
        log.append(rows, gone, first - 1)  # compacted before the first: watches list again
    finally:
        log.close()
    return RestoreResult(tuple(restored), tuple(each for each in damaged if each not in restored))


def _restored_row(damaged: Damaged, data: bytes, revision: int) -> Row:
    document = msgspec.json.decode(data)
    document["metadata"]["resourceVersion"] = str(revision)
    namespace, name = damaged.key
    now = int(time())
    return Row(revision, damaged.kind, namespace, name, False, now, encode(document))  # noqa: FBT003


def checkpoint(path: Path) -> None:
    """Merge the write-ahead log of a store that no process has open into its file.

    Raises LogError.
    """
    try:
        with closing(_existing(path)) as connection:
            connection.execute("PRAGMA journal_mode=DELETE")
    except (*UNREADABLE, OSError) as error:
        raise LogError(f"{path}: its write-ahead log cannot be merged: {error}") from error


def _existing(path: Path) -> sqlite3.Connection:
    """Open a file that must exist: none is created."""
    uri = f"{path.absolute().as_uri()}?mode=rw"
    return sqlite3.connect(uri, uri=True, isolation_level=None)


def _private(path: Path) -> sqlite3.Connection:
    """Create a file with mode 0600 from the start: it holds Secrets."""
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600))
    return sqlite3.connect(path, isolation_level=None)
