"""Tests of watches: what they begin with, what they tell, how they end."""

import asyncio
import json

import pytest

MAPS = "/api/v1/namespaces/default/configmaps"
SETS = "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstancereplicasets"
TABLE = {"accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
METADATA = {"accept": "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"}


class Stream:
    """A watch that is read frame by frame."""

    def __init__(self, body):
        self.body = body
        self.frames = []

    async def next(self):
        async with asyncio.timeout(2):
            while not self.frames:
                chunk = await anext(self.body)
                self.frames += [json.loads(line) for line in chunk.splitlines()]
        frame = self.frames.pop(0)
        return frame["type"], frame["object"]

    async def type_and_name(self):
        kind, document = await self.next()
        return kind, document["metadata"]["name"]


class Clock:
    """Time that goes on when it is told to."""

    def __init__(self, loop, monkeypatch):
        self.ahead = 0
        time = loop.time
        monkeypatch.setattr(loop, "time", lambda: time() + self.ahead)

    async def forward(self, seconds):
        for _ in range(5):  # whoever is ready goes first
            await asyncio.sleep(0)
        self.ahead += seconds
        for _ in range(5):
            await asyncio.sleep(0)


@pytest.fixture
async def clock(monkeypatch):
    return Clock(asyncio.get_running_loop(), monkeypatch)


async def watch(ask, query="", path=MAPS, headers=None):
    response = await ask.raw("GET", f"{path}?watch=1{query}", headers=headers)
    assert response.status == 200, response.body
    return Stream(response.body)


async def test_a_watch_from_a_revision_tells_what_came_after(ask):
    await ask.create(MAPS, "before")
    stream = await watch(ask, "&resourceVersion=2")
    await ask.create(MAPS, "a")
    await ask.patch(f"{MAPS}/a", {"data": {"x": "1"}})
    await ask.patch(f"{MAPS}/a", {"data": {"x": "1"}})  # changes nothing, tells nothing
    await ask("DELETE", f"{MAPS}/a")
    assert await stream.type_and_name() == ("ADDED", "a")
    kind, changed = await stream.next()
    assert (kind, changed["data"]) == ("MODIFIED", {"x": "1"})
    kind, gone = await stream.next()
    assert kind == "DELETED"
    assert gone["data"] == {"x": "1"}
    assert int(gone["metadata"]["resourceVersion"]) == ask.server.store.revision
    await stream.body.aclose()


async def test_a_watch_without_a_revision_begins_with_what_there_is(ask):
    await ask.create(MAPS, "a")
    for query in ("", "&resourceVersion=0"):
        stream = await watch(ask, query)
        assert await stream.type_and_name() == ("ADDED", "a")
        await stream.body.aclose()


async def test_a_streaming_list_ends_with_the_bookmark_that_clients_wait_for(ask):
    await ask.create(MAPS, "a")
    query = "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
    stream = await watch(ask, query)
    assert await stream.type_and_name() == ("ADDED", "a")
    kind, bookmark = await stream.next()
    assert kind == "BOOKMARK"
    assert bookmark["kind"] == "ConfigMap"
    assert bookmark["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
    assert bookmark["metadata"]["resourceVersion"] == "2"
    await ask.create(MAPS, "b")
    assert await stream.type_and_name() == ("ADDED", "b")
    await stream.body.aclose()


async def test_initial_events_need_their_match(ask):
    refused = await ask("GET", f"{MAPS}?watch=1&sendInitialEvents=true")
    assert refused.status == 422
    assert refused["details"]["causes"][0]["field"] == "sendInitialEvents"
    refused = await ask("GET", f"{MAPS}?watch=1&resourceVersionMatch=NotOlderThan")
    assert refused.status == 422
    query = "&sendInitialEvents=false&resourceVersionMatch=NotOlderThan"
    await ask.create(MAPS, "a")
    stream = await watch(ask, query)
    await ask.create(MAPS, "b")
    assert await stream.type_and_name() == ("ADDED", "b")
    await stream.body.aclose()


async def test_a_watch_ends_when_its_time_is_over(ask, clock):
    stream = await watch(ask, "&resourceVersion=1&timeoutSeconds=300")
    reading = asyncio.ensure_future(anext(stream.body, None))
    await clock.forward(299)
    assert not reading.done()
    await clock.forward(1)
    async with asyncio.timeout(2):
        assert await reading is None


async def test_bookmarks_come_although_nothing_that_matters_stays_away(ask, clock):
    query = "&resourceVersion=1&allowWatchBookmarks=true&labelSelector=app%3Dweb"
    stream = await watch(ask, query)
    reading = asyncio.ensure_future(anext(stream.body))
    for number in range(7):
        await ask.create(MAPS, f"n{number}")
        await clock.forward(10)
    bookmark = json.loads(await reading)
    assert bookmark["type"] == "BOOKMARK"
    assert bookmark["object"]["metadata"]["resourceVersion"] == "7"
    await stream.body.aclose()


async def test_a_long_list_is_streamed_in_pieces(ask):
    for number in range(300):
        await ask.create(MAPS, f"n{number}")
    stream = await watch(ask)
    sizes = [len((await anext(stream.body)).splitlines()) for _ in range(2)]
    assert sum(sizes) == 300
    assert max(sizes) <= 256
    await stream.body.aclose()


async def test_bookmarks_tell_progress_where_they_are_asked_for(ask, monkeypatch):
    monkeypatch.setattr("corral.server.watch.BOOKMARK_SECONDS", 0.01)
    stream = await watch(ask, "&resourceVersion=1&allowWatchBookmarks=true")
    await ask("POST", SETS.replace("default/", "nons/"), {})  # refused: nothing new
    await ask.create("/api/v1/namespaces", "other")  # another kind moves the counter
    async with asyncio.timeout(2):
        while True:
            kind, bookmark = await stream.next()
            assert kind == "BOOKMARK"
            if bookmark["metadata"]["resourceVersion"] == "2":
                break
    await stream.body.aclose()


async def test_too_old_a_revision_is_an_error_in_the_stream(ask):
    await ask.create(MAPS, "a")
    ask.server.store._memory.forget(2)
    (frame,) = await ask.frames(f"{MAPS}?watch=1&resourceVersion=1")
    assert frame["type"] == "ERROR"
    assert (frame["object"]["code"], frame["object"]["reason"]) == (410, "Expired")
    assert frame["object"]["message"] == "too old resource version: 1 (2)"


async def test_a_selector_lets_objects_come_and_go(ask):
    stream = await watch(ask, "&resourceVersion=1&labelSelector=app%3Dweb")
    await ask.create(MAPS, "a")
    await ask.create(MAPS, "other", labels={"app": "db"})
    await ask.patch(f"{MAPS}/a", {"metadata": {"labels": {"app": "web"}}})
    assert await stream.type_and_name() == ("ADDED", "a")
    await ask.patch(f"{MAPS}/a", {"data": {"x": "1"}})
    assert await stream.type_and_name() == ("MODIFIED", "a")
    await ask.patch(f"{MAPS}/a", {"metadata": {"labels": {"app": "db"}}})
    kind, gone = await stream.next()
    assert kind == "DELETED"
    assert gone["metadata"]["labels"] == {"app": "web"}
    assert int(gone["metadata"]["resourceVersion"]) == ask.server.store.revision
    await stream.body.aclose()


async def test_a_watch_of_one_object_tells_of_no_other(ask):
    by_field = await watch(ask, "&resourceVersion=1&fieldSelector=metadata.name%3Db")
    by_path = await watch(ask, "&resourceVersion=1", path=f"{MAPS}/b")
    old_spelling = await ask.raw("GET", "/api/v1/watch/namespaces/default/configmaps/b")
    await ask.create(MAPS, "a")
    await ask.create(MAPS, "b")
    for stream in (by_field, by_path, Stream(old_spelling.body)):
        assert await stream.type_and_name() == ("ADDED", "b")
        await stream.body.aclose()


async def test_a_watch_of_a_namespace_tells_of_no_other(ask):
    await ask.create("/api/v1/namespaces", "other")
    stream = await watch(ask, "&resourceVersion=1")
    everywhere = await watch(ask, "&resourceVersion=1", path="/api/v1/configmaps")
    await ask.create("/api/v1/namespaces/other/configmaps", "a")
    await ask.create(MAPS, "b")
    assert await stream.type_and_name() == ("ADDED", "b")
    assert await everywhere.type_and_name() == ("ADDED", "a")
    await stream.body.aclose()
    await everywhere.body.aclose()


async def test_tables_tell_their_columns_once(ask):
    stream = await watch(ask, headers=TABLE)
    await ask.create(MAPS, "a")
    await ask.create(MAPS, "b")
    _, first = await stream.next()
    _, second = await stream.next()
    assert first["columnDefinitions"]
    assert second["columnDefinitions"] == []
    assert second["rows"][0]["cells"][0] == "b"
    await stream.body.aclose()


async def test_metadata_alone_can_be_watched(ask):
    stream = await watch(ask, headers=METADATA)
    await ask.create(MAPS, "a", data={"x": "1"})
    _, document = await stream.next()
    assert document["kind"] == "PartialObjectMetadata"
    assert "data" not in document
    await stream.body.aclose()


async def test_a_watch_that_is_left_is_forgotten(ask):
    stream = await watch(ask)
    await ask.create(MAPS, "a")
    await stream.next()
    assert ask.server.store._watches["configmaps"]
    await stream.body.aclose()
    assert not ask.server.store._watches["configmaps"]


async def test_only_what_says_no_is_no_watch(ask):
    for value in ("0", "false", "False"):
        assert (await ask("GET", f"{MAPS}?watch={value}"))["kind"] == "ConfigMapList"
    response = await ask.raw("GET", f"{MAPS}?watch=yes")
    await response.body.aclose()
    for path in (f"{MAPS}?watch=1", "/api/v1/watch/configmaps"):
        assert (await ask("HEAD", path)).status == 200


async def test_watches_end_with_the_store(ask):
    stream = await watch(ask, "&resourceVersion=1")
    reading = asyncio.ensure_future(anext(stream.body, None))
    await asyncio.sleep(0)
    await ask.server.store.close()
    async with asyncio.timeout(2):
        assert await reading is None
