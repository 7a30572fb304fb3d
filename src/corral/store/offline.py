"""What is done with the file of a store as a whole, by whoever copies, checks or restores it."""

import os
import sqlite3
from contextlib import closing
from pathlib import Path
from time import time
from typing import NamedTuple

import msgspec

from corral.api.encoding import encode
from corral.store import wal
from corral.store.damage import Damaged, sort_out, told
from corral.store.row import Row, fault, is_whole
from corral.store.sqlite import UNREADABLE, Log, LogError, expected, statements_of


def copy(source: Path, target: Path) -> None:
    """Copy a store as it is at this moment, also while somebody writes to it, without free room.

    The target must not be there.  Raises LogError.
    """
    try:
        with closing(_existing(source)) as reading, closing(_private(target)) as writing:
            reading.backup(writing, pages=-1)  # all at once: of one moment, and never begun anew
            writing.execute("PRAGMA journal_mode=DELETE")
            writing.execute("VACUUM")
    except (*UNREADABLE, OSError) as error:
        raise LogError(f"{source}: cannot be copied: {error}") from error


def check(path: Path) -> None:
    """Read a whole store that somebody else may have made.

    Raises LogError for what is damaged, foreign, of another version, or more than tables of ours.
    """
    try:
        with closing(_existing(path)) as connection:
            connection.execute("PRAGMA trusted_schema=OFF")
            (version,) = connection.execute("PRAGMA user_version").fetchone()
            statements = statements_of(connection)
            (verdict,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
    except (*UNREADABLE, OSError) as error:
        raise LogError(f"{path}: is no store that can be read: {error}") from error
    if verdict != "ok":
        raise LogError(f"{path}: is damaged: {verdict}")
    if statements != expected(version):
        raise LogError(f"{path}: is a database, but not corral's")
    log = Log(path)
    try:
        found = sort_out(log.rows(strict=True))
    finally:
        log.close()
    if found.damaged:
        raise LogError(f"{path}: is damaged: {told(found.damaged.values())}")
    if found.floor:
        raise LogError(f"{path}: is damaged: the history up to revision {found.floor} has gaps")
    for row in found.whole:
        if row.data and (why := fault(row)):
            raise LogError(f"{path}: is damaged: revision {row.revision} {why}")


def is_empty(path: Path) -> bool:
    """Whether there is no store, or one without anything in it; nobody may have it open."""
    if wal.is_left(path):  # SQLite must not look at it before it is mended
        return False
    if not path.exists():
        return True
    try:
        with closing(_existing(path)) as connection:
            (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except (*UNREADABLE, OSError):
        return False  # something else: who opens it says what
    return not tables


def newest(path: Path) -> int:
    """The newest revision that a store has given.  Raises LogError."""
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
    """An object as it was written last; None where it is not there.

    Raises LogError, also where that is damaged.
    """
    query = (
        "SELECT * FROM log WHERE kind = ? AND namespace = ? AND name = ?"
        " ORDER BY revision DESC LIMIT 1"
    )
    try:
        with closing(_existing(path)) as connection:
            found = connection.execute(query, (kind, namespace, name)).fetchone()
    except UNREADABLE as error:
        raise LogError(f"{path}: cannot be read: {error}") from error
    if found is None:
        return None
    row, stored = Row._make(found[: len(Row._fields)]), found[len(Row._fields) :]
    if stored and not is_whole(row, *stored):  # the first version knew no checksums
        raise LogError(f"{path}: is damaged: {kind} {namespace}/{name} cannot be read")
    return None if row.deleted else row.data


def begin_at(path: Path, revision: int) -> int:
    """Forget the history of a store, so that it begins at a later revision; how many objects.

    Whoever watches from before that is told to list anew.  All or nothing.  Raises LogError.
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


class Mended(NamedTuple):
    """What has become of the damaged objects of a store: those that are back, and the others."""

    restored: tuple[Damaged, ...]
    missing: tuple[Damaged, ...]


def mend(path: Path, source: Path) -> Mended:
    """Put objects of another store in the place of those that are damaged here, all or none.

    Nobody may have either open.  What is there and whole stays.  Raises LogError, and ApiError
    where nothing could be written.
    """
    log = Log(path)
    try:
        damaged = sort_out(log.rows()).damaged.values()
        known = {each: latest(source, each.kind, *each.key) for each in damaged}
        first = newest(path) + 1
        back = {each: data for each, data in known.items() if data is not None}
        rows = [
            _again(each, data, revision)
            for revision, (each, data) in enumerate(back.items(), first)
        ]
        gone = [revision for each in back for revision in each.revisions]
        log.append(rows, gone, first - 1)  # whoever watches lists anew
    finally:
        log.close()
    return Mended(tuple(back), tuple(each for each in damaged if each not in back))


def _again(damaged: Damaged, data: bytes, revision: int) -> Row:
    document = msgspec.json.decode(data)
    document["metadata"]["resourceVersion"] = str(revision)
    namespace, name = damaged.key
    now = int(time())
    return Row(revision, damaged.kind, namespace, name, False, now, encode(document))  # noqa: FBT003


def settle(path: Path) -> None:
    """Have everything of a store that nobody has open in its one file.  Raises LogError."""
    try:
        with closing(_existing(path)) as connection:
            connection.execute("PRAGMA journal_mode=DELETE")
    except (*UNREADABLE, OSError) as error:
        raise LogError(f"{path}: cannot be settled: {error}") from error


def _existing(path: Path) -> sqlite3.Connection:
    """A file that has to be there: none is made."""
    uri = f"{path.absolute().as_uri()}?mode=rw"
    return sqlite3.connect(uri, uri=True, isolation_level=None)


def _private(path: Path) -> sqlite3.Connection:
    """A new file, which nobody else may read from its first byte."""
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600))
    return sqlite3.connect(path, isolation_level=None)
