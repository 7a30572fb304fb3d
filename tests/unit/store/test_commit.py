"""On a full disk objects still end: by room that was kept for that."""

import asyncio

import pytest

from corral.api.errors import InternalError, StorageFull
from corral.api.object import Key
from corral.store import Log, Store

KIND = "things.example.com"


def key(name):
    return Key("default", name)


def thing(name, **metadata):
    return {"metadata": {"name": name, "namespace": "default", **metadata}}


class Disk:
    """A log on a disk that takes so many rows more, and some for each piece that is given up."""

    def __init__(self, room=10**9, pieces=10**9):
        self.log = Log(None)
        self.wal_repair = ""
        self.compacted, self.rows, self.close = self.log.compacted, self.log.rows, self.log.close
        self.room, self.pieces = room, pieces
        self.tried = []
        self.fails = False

    def append(self, rows, forget, compacted):
        self.tried.append(len(rows))
        if self.fails and len(self.tried) > 1:
            raise InternalError("input/output error")
        if len(rows) > self.room:
            raise StorageFull("no space left")
        self.room -= len(rows)
        self.log.append(rows, forget, compacted)

    def make_room(self):
        if self.pieces == 0:
            return False
        self.pieces -= 1
        self.room += 1
        return True


@pytest.fixture
async def disk():
    return Disk()


@pytest.fixture
async def store(disk):
    store = Store(disk, threaded=False, make_room=disk.make_room)
    for name in "abc":
        await store.write(KIND, key(name), thing(name))
    disk.room, disk.tried = 0, []
    yield store
    await store.close()


def names(store):
    return [record.key.name for record in store.objects(KIND)]


async def outcomes(*writes):
    return [
        type(each).__name__ for each in await asyncio.gather(*writes, return_exceptions=True)
    ]  # fmt: skip


async def test_on_a_full_disk_deletions_are_stored_and_creations_rejected(store, disk):
    assert await outcomes(
        store.write(KIND, key("d"), thing("d")),
        store.delete(KIND, key("a"), thing("a")),
        store.write(KIND, key("b"), thing("b", deletionTimestamp="2026-01-01T00:00:00Z")),
        store.write(KIND, key("c"), thing("c", labels={"x": "y"})),
    ) == ["StorageFull", "Record", "Record", "StorageFull"]
    assert names(store) == ["b", "c"]
    assert store.latest(KIND, key("c")).labels == {}
    assert store.latest(KIND, key("d")) is None
    assert store.error_message == "no space left"
    assert disk.tried == [4, 2, 2], "one piece was not enough for both"
    disk.room = 100
    await store.write(KIND, key("e"), thing("e"))
    assert store.error_message == ""


async def test_writes_based_on_a_rejected_version_are_rejected(store):
    assert await outcomes(
        store.write(KIND, key("a"), thing("a", labels={"x": "y"})),
        store.delete(KIND, key("a"), thing("a", labels={"x": "y"})),
        store.delete(KIND, key("b"), thing("b")),
    ) == ["StorageFull", "StorageFull", "Record"]
    assert names(store) == ["a", "c"]


async def test_the_reserve_is_not_used_for_creations(store, disk):
    before = disk.pieces
    assert await outcomes(store.write(KIND, key("d"), thing("d"))) == ["StorageFull"]
    assert disk.pieces == before
    assert disk.tried == [1]


async def test_the_reserve_is_not_used_for_updates_of_terminating_objects(store, disk):
    """Whoever may write one object that waits for a finalizer would use up what is kept."""
    held = {"deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 9}

    def write(*finalizers, **metadata):
        document = thing("a", **(held | {"finalizers": [*finalizers]} | metadata))
        return store.write(KIND, key("a"), document)

    assert await outcomes(write("x/a", "x/b")) == ["Record"]
    before = disk.pieces
    for change in ({"labels": {"x": "y"}}, {"deletionGracePeriodSeconds": 8}):
        assert await outcomes(write("x/a", "x/b", **change)) == ["StorageFull"]
    assert await outcomes(write("x/b", "x/a")) == ["StorageFull"]
    assert disk.pieces == before
    assert await outcomes(write("x/a", "x/b", deletionGracePeriodSeconds=0)) == ["Record"]
    assert await outcomes(write("x/a", deletionGracePeriodSeconds=0)) == ["Record"]
    updated = thing("a", **(held | {"finalizers": ["x/a"]})) | {"status": {"phase": "Succeeded"}}
    assert await outcomes(store.write(KIND, key("a"), updated)) == ["Record"]


async def test_without_a_reserve_deletions_are_rejected(store, disk):
    disk.pieces = 1
    assert await outcomes(
        store.delete(KIND, key("a"), thing("a")), store.delete(KIND, key("b"), thing("b"))
    ) == ["StorageFull", "StorageFull"]
    assert names(store) == ["a", "b", "c"]
    assert disk.tried == [2, 2]


async def test_the_reserve_is_used_for_a_full_disk_only(store, disk):
    disk.fails, disk.pieces = True, 20
    assert await outcomes(store.delete(KIND, key("a"), thing("a"))) == ["InternalError"]
    assert (disk.tried, disk.pieces) == ([1, 1], 19)


async def test_deletions_staged_during_a_failed_commit_are_stored(disk, tmp_path):
    store = Store(disk, make_room=disk.make_room)
    for name in "abc":
        await store.write(KIND, key(name), thing(name))
    disk.room = 0
    first = store.write(KIND, key("a"), thing("a", labels={"x": "y"}))
    await asyncio.sleep(0)  # it is on its way
    assert await outcomes(
        first,
        store.delete(KIND, key("a"), thing("a", labels={"x": "y"})),
        store.delete(KIND, key("b"), thing("b")),
        store.write(KIND, key("c"), thing("c", labels={"x": "y"})),
        store.write(KIND, key("d"), thing("d")),
    ) == ["StorageFull", "StorageFull", "Record", "StorageFull", "StorageFull"]
    assert names(store) == ["a", "c"]
    await store.delete(KIND, key("a"), thing("a"))
    assert names(store) == ["c"]
    await store.close()


async def test_watchers_get_the_deletions(store):
    watch = store.watch(KIND, store.revision)
    await outcomes(
        store.write(KIND, key("d"), thing("d")), store.delete(KIND, key("a"), thing("a"))
    )
    assert [(each.record.key.name, each.deleted) for each in await watch.next_events(1)] == [
        ("a", True)
    ]
