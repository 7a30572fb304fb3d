"""Tests of the store against a plain model, and of its promises one by one."""

import asyncio
import json
import os
import shutil
import sqlite3
import subprocess
import sys
from types import SimpleNamespace

import pytest

from corral.api.errors import Gone, InternalError, StorageFull, TooLarge, Unavailable
from corral.api.object import Key
from corral.store import Log, LogError, Store, object_version, split_kind
from corral.store.memory import Retention
from corral.store.object_version import MAX_OBJECT_BYTES, Event, Record
from corral.store.row import Row
from corral.store.watch import MAX_BYTES, Watch

KIND = "things.example.com"


def thing(name, namespace="default", **fields):
    metadata = {"namespace": namespace, "name": name, **fields.pop("metadata", {})}
    return {"apiVersion": "example.com/v1", "kind": "Thing", "metadata": metadata, **fields}


def key(name, namespace="default"):
    return Key(namespace, name)


async def write(store, name, **fields):
    return await store.write(KIND, key(name), thing(name, **fields))


@pytest.fixture
async def store():
    store = Store.in_memory()
    yield store
    await store.close()


async def test_a_write_is_seen_by_readers_only_once_it_is_committed(store):
    done = store.write(KIND, key("a"), thing("a"))
    assert store.get(KIND, key("a")) is None
    assert store.latest(KIND, key("a")) is not None
    record = await done
    assert store.get(KIND, key("a")) is record
    assert record.document()["metadata"]["resourceVersion"] == str(store.revision) == "1"


COPY = """
import pathlib, sys
from corral.store import offline
offline.copy(*map(pathlib.Path, sys.argv[1:]))
"""
NAMES = """
import sqlite3, sys
print(*sqlite3.connect(sys.argv[1]).execute("SELECT name FROM log"))
"""


async def test_a_backup_of_a_store_in_use_changes_nothing(tmp_path):
    """SQLite removes the write-ahead log with the last user; a lost lock makes it count wrong."""
    path = tmp_path / "store"
    store = Store.open(path)
    await write(store, "before")
    for name in ("first", "second"):
        copy = tmp_path / name
        await asyncio.to_thread(
            subprocess.run, [sys.executable, "-c", COPY, path, copy], check=True
        )
        await write(store, name)
        found = await asyncio.to_thread(
            subprocess.run, [sys.executable, "-c", NAMES, path], check=True, capture_output=True
        )
        assert name in found.stdout.decode()
    await store.close()


async def test_keys_share_kinds_and_namespaces(tmp_path):
    """Each request, and each row, brings its own copy of a namespace's and of a kind's name."""
    store = Store.open(tmp_path / "store")
    for name in "ab":
        await store.write(KIND, Key("-".join(["name", "space"]), name), thing(name, "name-space"))
    await store.close()
    again = Store.open(tmp_path / "store")
    for one in (store, again):
        first, second = one.objects(KIND)
        assert first.key.namespace is second.key.namespace
        assert first.kind is second.kind
    await again.close()


async def test_latest_versions_include_staged_ones(store):
    for name in "ab":
        await write(store, name)
    writes = [
        store.write(KIND, key("a"), thing("a", spec=2)),
        store.delete(KIND, key("b"), thing("b")),
        store.write(KIND, key("c"), thing("c")),
        store.write("others", key("d"), thing("d")),
        store.write(KIND, key("e", "elsewhere"), thing("e", "elsewhere")),
    ]
    newest = store.latest_all(KIND)
    there, elsewhere = [key(name) for name in "ac"], key("e", "elsewhere")
    assert newest == {each: store.latest(KIND, each) for each in (*there, elsewhere)}
    assert list(store.latest_all(KIND, "default")) == there
    assert list(store.latest_all(KIND, "elsewhere")) == [elsewhere]
    assert [record.key.name for record in store.objects(KIND)] == ["a", "b"]
    await asyncio.gather(*writes)
    assert store.latest_all(KIND) == newest


async def test_versions_of_an_object_share_their_key_and_labels(store):
    """Each has most of a kilobyte of them otherwise, for as long as watches can go back to it."""
    first = await write(store, "a", metadata={"labels": {"app": "web"}})
    second = await write(store, "a", metadata={"labels": {"app": "web"}}, spec=2)
    third = await write(store, "a", metadata={"labels": {"app": "other"}})
    assert first.key is second.key is third.key
    assert first.labels is second.labels
    assert third.labels == {"app": "other"}


async def test_objects_of_a_kind_share_their_first_bytes(tmp_path):
    store = Store.open(tmp_path / "store.db")
    first = await write(store, "a", spec='"metadata":{')
    second = await write(store, "b")
    assert first.head is second.head
    assert json.loads(first.head + b'"x":1}').keys() == {"apiVersion", "kind", "x"}
    assert first.rest.startswith(b'"metadata":{')
    assert (first.data, first.size) == (first.head + first.rest, len(first.data))
    await store.close()
    store = Store.open(tmp_path / "store.db")
    again = store.get(KIND, key("a"))
    assert (again.head, again.rest) == (first.head, first.rest)
    assert again.head is store.get(KIND, key("b")).head
    await store.close()


@pytest.mark.parametrize(
    ("data", "opening"),
    [
        (b'{"kind":"\\"metadata\\":","metadata":{}}', b'{"kind":"\\"metadata\\":",'),
        (b'{"metadata":{}}', b"{"),
        (b'{"spec":1}', b""),
    ],
)
def test_unusual_first_bytes_are_split(data, opening):
    assert split_kind(data) == (opening, data.removeprefix(opening))


async def test_the_size_of_an_object_is_limited(store):
    whole = (await write(store, "a", spec="x" * (MAX_OBJECT_BYTES - 1000))).data
    fill = MAX_OBJECT_BYTES - len(whole)
    largest = await write(store, "a", spec="x" * (MAX_OBJECT_BYTES - 1000 + fill))
    assert len(largest.data) == MAX_OBJECT_BYTES
    for name in "ab":
        with pytest.raises(TooLarge, match=f"limit is {MAX_OBJECT_BYTES} bytes"):
            await write(store, name, spec="x" * MAX_OBJECT_BYTES)
    assert store.latest(KIND, key("a")) is largest
    assert store.latest(KIND, key("b")) is None
    assert (await write(store, "c")).revision == largest.revision + 1


async def test_too_large_objects_can_shrink_and_be_deleted(store, monkeypatch):
    monkeypatch.setattr(object_version, "MAX_OBJECT_BYTES", 4 << 20)
    await write(store, "a", spec="x" * (3 << 20))
    monkeypatch.undo()
    await write(store, "a", spec="x" * (2 << 20))
    with pytest.raises(TooLarge):
        await write(store, "a", spec="x" * (3 << 20))
    mark = {"deletionTimestamp": "2026-01-01T00:00:00Z"}
    await write(store, "a", spec="x" * (2 << 20), metadata=mark)
    with pytest.raises(TooLarge):
        await write(store, "a", spec="x" * (3 << 20), metadata=mark)
    await store.delete(KIND, key("a"), thing("a", spec="x" * (3 << 20)))
    assert store.latest(KIND, key("a")) is None


async def test_one_counter_numbers_all_kinds(store):
    first = await write(store, "a")
    second = await store.write("others", Key("", "b"), thing("b", ""))
    assert second.revision == first.revision + 1


async def test_objects_come_in_key_order_by_namespace(store):
    for namespace, name in (("b", "x"), ("a", "y"), ("a-b", "z"), ("a", "x")):
        await store.write(KIND, Key(namespace, name), thing(name, namespace))
    assert [record.key for record in store.objects(KIND, "a")] == [Key("a", "x"), Key("a", "y")]
    assert len(store.objects(KIND)) == 4


async def test_a_list_can_go_back_to_an_older_revision(store):
    old = await write(store, "a", spec=1)
    await write(store, "b")
    past = store.revision
    await write(store, "a", spec=2)
    await store.delete(KIND, key("b"), thing("b"))
    await write(store, "c")
    assert [record.key.name for record in store.objects(KIND)] == ["a", "c"]
    then = list(store.record_range(KIND, revision=past).records)
    assert [record.key.name for record in then] == ["a", "b"]
    assert then[0] is old


async def test_changes_since_a_revision(store):
    assert store.last_changed(KIND) == 0
    for name in "ab":
        await write(store, name)
    seen = store.last_changed(KIND)
    await store.write("others", key("x"), thing("x"))
    assert store.last_changed(KIND) == seen == 2
    assert store.changes(KIND, seen) == []
    await write(store, "a", spec=2)
    await store.delete(KIND, key("b"), thing("b"))
    changes = store.changes(KIND, seen)
    assert [(each.record.key.name, each.deleted) for each in changes] == [("a", False), ("b", True)]
    assert changes[0].previous.revision == 1
    assert store.last_changed(KIND) == store.revision


async def test_a_watch_from_a_revision_has_all_changes_in_order(store):
    await write(store, "a")
    since = store.revision
    await write(store, "a", spec=2)
    await store.delete(KIND, key("a"), thing("a"))
    watch = store.watch(KIND, since)
    events = await watch.next_events(1)
    assert [(event.revision, event.deleted) for event in events] == [(2, False), (3, True)]
    assert events[0].previous is not None
    watch.close()


async def test_large_changes_are_read_a_few_at_a_time(store):
    """The window forgets what waits; what was taken it cannot."""
    watch = store.watch(KIND, 0)
    for number in range(4):
        await write(store, "a", spec=str(number) * 40_000)
    assert [len(await watch.next_events(1)) for _ in range(2)] == [2, 2]
    watch.close()


async def test_changes_that_fill_a_batch_exactly():
    watch = Watch(0, on_close=lambda _: None)
    watch.publish([event(revision, MAX_BYTES // 2) for revision in range(1, 4)])
    assert [len(await watch.next_events(1)) for _ in range(2)] == [2, 1]


async def test_a_watch_is_lost_only_if_the_window_has_dropped_its_changes():
    watch = Watch(0, on_close=lambda _: None)
    watch.forget(4)
    watch.publish([event(revision) for revision in (5, 6)])
    watch.forget(4)
    assert (watch.ended, watch.lost_after, watch.next_revision) == (False, None, 5)
    watch.forget(5)
    assert (watch.finished, watch.lost_after, watch.next_revision) == (True, 4, None)


def event(revision, size=2):
    return Event(Record.of(KIND, key("a"), revision, 0, b" " * size, labels={}), None)


@pytest.mark.looptime
async def test_a_watch_waits_up_to_its_timeout(store):
    watch = store.watch(KIND, 0, "default")
    assert await watch.next_events(3600) == []
    await store.write(KIND, key("a", "other"), thing("a", "other"))
    await write(store, "a")
    assert [event.record.key for event in await watch.next_events(1)] == [key("a")]
    watch.close()


@pytest.mark.looptime
async def test_a_watch_of_one_name_is_not_woken_by_others(store):
    await write(store, "a")
    watch = store.watch(KIND, 0, "default", "a")
    await write(store, "b")
    await write(store, "a", spec=2)
    assert [event.revision for event in await watch.next_events(1)] == [1, 3]
    await write(store, "b", spec=2)
    assert await watch.next_events(3600) == []
    watch.close()


@pytest.mark.looptime
async def test_waiting_watches_end_with_the_store_at_once(store, looptime):
    watch = store.watch(KIND, 0)
    waiting = asyncio.ensure_future(watch.next_events(3600))
    await asyncio.sleep(1)
    store.end_watches(KIND)
    assert await waiting == []
    assert (looptime, watch.finished) == (1, True)


async def test_only_watches_behind_the_window_are_lost():
    store = Store(Log(None), threaded=False, retention=Retention(changes=3))
    slow, quick = store.watch(KIND, 0), store.watch(KIND, 0)
    for number in range(5):
        assert not slow.ended or number == 4
        await write(store, f"n{number}")
        await quick.next_events(1)
    assert slow.ended
    assert slow.finished, "nothing may be kept alive for it"
    assert not quick.ended
    quick.close()
    await store.close()


async def test_a_watch_from_a_future_revision_skips_earlier_changes(store):
    watch = store.watch(KIND, 2)
    await asyncio.gather(*(store.write(KIND, key(name), thing(name)) for name in "abc"))
    assert [event.revision for event in await watch.next_events(1)] == [3]
    watch.close()


async def test_many_changes_are_read_in_batches(store):
    await asyncio.gather(*(store.write(KIND, key(f"{n}"), thing(f"{n}")) for n in range(600)))
    watch = store.watch(KIND, 0)
    turns = []
    asyncio.get_running_loop().call_soon(turns.append, 1)
    sizes = [len(await watch.next_events(1)) for _ in range(3)]
    assert turns
    assert sum(sizes) == 600
    assert max(sizes) <= 256
    watch.close()


async def test_compaction_keeps_the_current_state():
    store = Store(Log(None), threaded=False, retention=Retention(changes=2))
    for number in range(10):
        await write(store, "a", spec=number)
    assert 0 < store.compacted < store.revision
    with pytest.raises(Gone, match=r"too old resource version: 1 \("):
        store.watch(KIND, 1)
    with pytest.raises(Gone):
        store.record_range(KIND, revision=1)
    assert store.get(KIND, key("a")).document()["spec"] == 9
    await store.close()


async def test_the_window_is_limited_by_bytes():
    store = Store(Log(None), threaded=False, retention=Retention(bytes=20_000))
    for number in range(50):
        await write(store, "a", spec="x" * 1000 + str(number))
    assert store.revision - store.compacted < 20
    await store.close()


async def test_objects_survive_a_restart(tmp_path):
    store = Store.open(tmp_path / "store.db")
    await write(store, "a", metadata={"labels": {"app": "web"}})
    await write(store, "b")
    await store.delete(KIND, key("b"), thing("b"))
    revision = store.revision
    await store.close()
    again = Store.open(tmp_path / "store.db")
    assert again.revision == revision
    assert [record.labels for record in again.objects(KIND)] == [{"app": "web"}]
    assert len(await again.watch(KIND, 0).next_events(0)) == 3
    assert (await write(again, "c")).revision == revision + 1
    await again.close()


async def test_the_revision_never_decreases(tmp_path):
    log = Log(tmp_path / "store.db")
    store = Store(log, retention=Retention(changes=0))
    await write(store, "a")
    await store.delete(KIND, key("a"), thing("a"))
    await store.tidy()
    await store.close()
    with sqlite3.connect(tmp_path / "store.db") as connection:
        assert connection.execute("SELECT count(*) FROM log").fetchone() == (0,)
    connection.close()
    again = Store.open(tmp_path / "store.db")
    assert again.revision == 2
    await again.close()


async def test_objects_with_a_lifetime_expire():
    now = 1000.0
    store = Store(Log(None), threaded=False, lifetimes={KIND: 60}, clock=lambda: now)
    await write(store, "old")
    now = 1050.0
    await write(store, "young")
    now = 1060.0
    await store.tidy()
    assert [record.key.name for record in store.objects(KIND)] == ["old", "young"]
    now = 1061.0
    watch = store.watch(KIND, store.revision)
    await store.tidy()
    events = await watch.next_events(1)
    assert [(event.record.key.name, event.deleted) for event in events] == [("old", True)]
    assert [record.key.name for record in store.objects(KIND)] == ["young"]
    await store.close()


async def test_a_failed_commit_fails_its_writes_and_the_store_continues(store, monkeypatch):
    await write(store, "a", spec=1)

    def full(rows, forget, compacted):
        raise StorageFull("no space left")

    with monkeypatch.context() as patch:
        patch.setattr(store._log, "append", full)
        first = store.write(KIND, key("a"), thing("a", spec=2))
        second = store.write(KIND, key("b"), thing("b"))
        for done in (first, second):
            with pytest.raises(StorageFull):
                await done
    assert store.latest(KIND, key("b")) is None
    assert store.latest(KIND, key("a")).document()["spec"] == 1
    assert (await write(store, "c")).revision > 1
    assert [record.key.name for record in store.objects(KIND)] == ["a", "c"]


async def test_waiting_writes_share_a_commit(tmp_path, monkeypatch):
    store = Store.open(tmp_path / "store.db")
    commits = []
    append = store._log.append
    monkeypatch.setattr(
        store._log, "append", lambda rows, *rest: (commits.append(len(rows)), append(rows, *rest))
    )
    for done in [store.write(KIND, key(f"n{n}"), thing(f"n{n}")) for n in range(50)]:
        await done
    assert commits == [50]
    await store.close()


async def test_a_cancelled_write_does_not_affect_others(store):
    gone = store.write(KIND, key("a"), thing("a"))
    kept = store.write(KIND, key("b"), thing("b"))
    gone.cancel()
    await kept
    assert store.get(KIND, key("a")) is not None


async def test_a_cancelled_waiter_does_not_cancel_others(store):
    gone = store.write(KIND, key("a"), thing("a"))
    waiting = asyncio.ensure_future(store.durable(store.latest(KIND, key("a"))))
    await asyncio.sleep(0)
    gone.cancel()
    assert (await waiting).key == key("a")


@pytest.mark.parametrize("threaded", [True, False])
@pytest.mark.parametrize("error", [OverflowError("a number is too large"), MemoryError()])
async def test_any_failure_of_a_commit_fails_its_own_writes_only(monkeypatch, threaded, error):
    store = Store(Log(None), threaded=threaded)

    def fail(*_args):
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(store._log, "append", fail)
        with pytest.raises(InternalError, match=r"too large|MemoryError"):
            await write(store, "a")
        assert store.error_message
    await write(store, "b")
    assert store.count(KIND) == 1
    await store.close()


async def test_all_waiters_for_idle_are_notified(tmp_path):
    store = Store.open(tmp_path / "store.db")
    for wait in (store.tidy, store.tidy, store.close):  # each time anew
        pending = store.write(KIND, key("a"), thing("a"))
        async with asyncio.timeout(60):
            await asyncio.gather(store.tidy(), wait())
        assert pending.done()


async def test_durable_waits_for_staged_writes(store):
    store.write(KIND, key("a"), thing("a"))
    record = store.latest(KIND, key("a"))
    assert await store.durable(record) is record
    assert store.get(KIND, key("a")) is record


async def test_a_closed_store_rejects_writes_and_ends_watches():
    store = Store.in_memory()
    watch = store.watch(KIND, 0)
    pending = store.write(KIND, key("a"), thing("a"))
    await store.close()
    assert pending.done()
    assert len(await watch.next_events(1)) == 1
    assert watch.ended
    with pytest.raises(Unavailable):
        store.write(KIND, key("b"), thing("b"))


def test_commits_are_synced_to_disk(tmp_path):
    log = Log(tmp_path / "store.db")
    assert log._connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert log._connection.execute("PRAGMA synchronous").fetchone() == (2,)
    log.close()


async def test_a_busy_loop_yields_the_interpreter_lock_soon(tmp_path):
    sys.setswitchinterval(0.005)
    store = Store.open(tmp_path / "store.db")
    await write(store, "a")
    assert sys.getswitchinterval() <= 0.001
    await store.close()


def test_many_rows_are_written_atomically(tmp_path):
    log = Log(tmp_path / "store.db")
    rows = [
        Row(number, KIND, "", f"n{number}", False, 0, b"%d" % number) for number in range(1, 201)
    ]
    log.append(rows, [], 0)
    assert [row for row, _ in log.rows()] == rows
    again = [rows[0]._replace(revision=number) for number in range(300, 199, -1)]
    with pytest.raises(InternalError):
        log.append(again, [1], 1)
    assert [row for row, _ in log.rows()] == rows
    log.append([], list(range(1, 191)), 190)
    assert [row.revision for row, _ in log.rows()] == list(range(191, 201))
    log.close()


def test_a_single_statement_is_its_own_transaction(tmp_path):
    log, again = Log(tmp_path / "store.db"), Log(tmp_path / "store.db")
    said = []
    log._connection.set_trace_callback(said.append)
    rows = [Row(number, KIND, "", f"n{number}", False, 0, b"{}") for number in range(1, 9)]
    log.append(rows, [], 0)
    assert [each.split()[0] for each in said] == ["INSERT"]
    assert [row for row, _ in again.rows()] == rows
    with pytest.raises(InternalError):
        log.append([rows[0]._replace(revision=9), rows[0]], [], 0)
    assert [row for row, _ in log.rows()] == rows
    log.append([rows[0]._replace(revision=9)], [1], 1)
    assert [each.split()[0] for each in said[-5:]] == [
        *("BEGIN", "INSERT", "DELETE", "UPDATE", "COMMIT")
    ]
    log.close()
    again.close()


def test_a_file_with_unsafe_permissions_is_rejected(tmp_path, monkeypatch):
    connect = sqlite3.connect
    # as where a file system has no shared memory: SQLite stays with another journal and says so
    monkeypatch.setattr(sqlite3, "connect", lambda _path, **how: connect(":memory:", **how))
    with pytest.raises(LogError, match=r"store\.db: .*journal_mode memory"):
        Log(tmp_path / "store.db")


def test_a_full_disk_is_an_error_at_start(tmp_path, monkeypatch):
    def refuse(_path, **_how):
        error = sqlite3.OperationalError("database or disk is full")
        error.sqlite_errorname = "SQLITE_FULL"
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(sqlite3, "connect", refuse)
        with pytest.raises(LogError, match="leave the file, check the disk's free space"):
            Log(tmp_path / "store.db")
    with pytest.raises(LogError, match=r"missing/store\.db: cannot be opened"):
        Log(tmp_path / "missing" / "store.db")


class FullDisk:
    """A connection to a store; what is in the log fits the database after three pieces."""

    def __init__(self, connection):
        self.__dict__.update(connection=connection, given=[])

    def __getattr__(self, name):
        return getattr(self.connection, name)

    def __setattr__(self, name, value):
        setattr(self.connection, name, value)

    def execute(self, statement, *values):
        if "wal_checkpoint" in statement and len(self.given) < 3:
            error = sqlite3.OperationalError("database or disk is full")
            error.sqlite_errorname = "SQLITE_FULL"
            raise error
        return self.connection.execute(statement, *values)

    def give(self):
        self.given.append(1)
        return True


@pytest.mark.parametrize("has_reserve", [True, False])
async def test_the_wal_of_a_killed_manager_is_checkpointed(tmp_path, monkeypatch, has_reserve):
    """On a full disk with what was kept for that; without it, it stays where it is."""
    first = Store.open(tmp_path / "store.db")
    await write(first, "a")
    killed = shutil.copytree(tmp_path, tmp_path / "killed")
    await first.close()
    disk = FullDisk(sqlite3.connect(killed / "store.db", isolation_level=None))
    monkeypatch.setattr(sqlite3, "connect", lambda *_, **__: disk)
    log = killed / "store.db-wal"
    assert log.stat().st_size > 0
    again = Store.open(killed / "store.db", make_room=disk.give if has_reserve else lambda: False)
    assert (log.stat().st_size == 0, len(disk.given)) == ((True, 3) if has_reserve else (False, 0))
    assert again.get(KIND, key("a")) is not None
    await again.close()


@pytest.mark.parametrize(
    ("blocks", "refusal"), [(255, StorageFull), (256, InternalError)], ids=["full", "has room"]
)
def test_failed_writes_with_little_space_left_count_as_a_full_disk(
    tmp_path, monkeypatch, blocks, refusal
):
    """SQLite does not say so of every such write: of some, only that the disk has failed."""
    log = Log(tmp_path / "store.db")
    row = Row(1, KIND, "default", "a", 0, 0, b"{}")
    log.append([row], [], 0)
    room = SimpleNamespace(f_bavail=blocks, f_frsize=4096)
    monkeypatch.setattr(os, "statvfs", {tmp_path: room}.__getitem__)
    with pytest.raises(refusal, match="nothing was stored"):
        log.append([row], [], 0)
    log.close()


def test_a_file_that_is_no_database_is_an_error(tmp_path):
    path = tmp_path / "store.db"
    path.write_bytes(b"no database at all" * 100)
    with pytest.raises(LogError, match=r"store\.db: cannot be opened.* start empty"):
        Log(path)


def test_a_newer_schema_is_rejected(tmp_path):
    path = tmp_path / "store.db"
    Log(path).close()
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(LogError, match="its schema is 99"):
        Log(path)


def test_a_foreign_database_is_left_alone(tmp_path):
    path = tmp_path / "store.db"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE theirs (x)")
    connection.close()
    with pytest.raises(LogError, match="not corral's"):
        Log(path)


def test_the_file_is_private(tmp_path):
    log = Log(tmp_path / "store.db")
    for path in tmp_path.iterdir():
        assert path.stat().st_mode & 0o777 == 0o600, path
    log.close()


async def test_a_revision_is_never_reused_after_compaction(tmp_path):
    path = tmp_path / "store.sqlite"
    store = Store(Log(path), retention=Retention(seconds=0, changes=0))
    await store.write(KIND, key("a"), thing("a"))
    gone = await store.delete(KIND, key("a"), thing("a"))
    await store.tidy()
    await store.close()
    store = Store.open(path)
    assert store.revision == gone.revision
    assert (await store.write(KIND, key("b"), thing("b"))).revision > gone.revision
    await store.close()


async def test_waiting_for_a_revision_ends_when_it_is_on_disk(store):
    waiting = [asyncio.ensure_future(store.wait_for_revision(2)) for _ in range(2)]
    await write(store, "a")
    await asyncio.sleep(0)
    assert not any(each.done() for each in waiting)
    await write(store, "b")
    async with asyncio.timeout(60):
        await asyncio.gather(*waiting)
    await store.wait_for_revision(1)


async def test_commits_are_measured_and_objects_know_their_metadata(store):
    record = await write(store, "a")
    assert sum(store.commits.counts) == 1
    assert 0 <= store.commits.sum < 60
    assert json.loads(record.metadata())["name"] == "a"


@pytest.mark.looptime
async def test_the_window_is_compacted_without_writes():
    now = asyncio.get_running_loop().time
    store = Store(Log(None), threaded=False, retention=Retention(seconds=60), clock=now)
    await write(store, "a")
    tidying = asyncio.ensure_future(store.run())
    await asyncio.sleep(59)
    assert store.compacted == 0
    await asyncio.sleep(60)
    assert store.compacted == 1
    tidying.cancel()
    await store.close()


async def test_bytes_kept_by_the_window_are_counted(store):
    first = await write(store, "a")
    second = await write(store, "a", spec=2)
    kept = store._memory.superseded_bytes
    last = await store.delete(KIND, key("a"), thing("a"))
    more = store._memory.superseded_bytes - kept
    assert kept == 2 * 200 + len(first.data) + 800
    assert more == 200 + len(second.data) + 800 + len(last.data) + 800
