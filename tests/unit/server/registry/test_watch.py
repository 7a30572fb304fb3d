"""Watches: their first events, later events and ends."""

import asyncio
import json

import pytest

from corral.api.errors import TooManyRequests
from corral.api.object import Key
from corral.api.request import Request, User
from corral.server.request.route import parse
from corral.server.response.presenter import Presenter
from corral.store.store import Retention

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
        async with asyncio.timeout(60):
            while not self.frames:
                chunk = await anext(self.body)
                self.frames += [json.loads(line) for line in chunk.splitlines()]
        frame = self.frames.pop(0)
        return frame["type"], frame["object"]

    async def type_and_name(self):
        kind, document = await self.next()
        return kind, document["metadata"]["name"]


class Clock:
    """Time that goes on when a test says so."""

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


async def test_a_watch_from_a_revision_sends_later_changes(ask):
    await ask.create(MAPS, "before")
    stream = await watch(ask, "&resourceVersion=2")
    await ask.create(MAPS, "a")
    await ask.patch(f"{MAPS}/a", {"data": {"x": "1"}})
    await ask.patch(f"{MAPS}/a", {"data": {"x": "1"}})  # changes nothing, sends no event
    await ask("DELETE", f"{MAPS}/a")
    assert await stream.type_and_name() == ("ADDED", "a")
    kind, changed = await stream.next()
    assert (kind, changed["data"]) == ("MODIFIED", {"x": "1"})
    kind, gone = await stream.next()
    assert kind == "DELETED"
    assert gone["data"] == {"x": "1"}
    assert int(gone["metadata"]["resourceVersion"]) == ask.server.store.revision
    await stream.body.aclose()


async def test_a_watch_without_a_revision_begins_with_the_current_objects(ask):
    await ask.create(MAPS, "a")
    for query in ("", "&resourceVersion=0"):
        stream = await watch(ask, query)
        assert await stream.type_and_name() == ("ADDED", "a")
        await stream.body.aclose()


async def test_a_watch_begins_with_the_objects_of_its_revision_in_any_chunks(ask):
    """Objects that are not sent yet are looked up when they are: no watcher holds old versions."""
    for number in range(200):
        await ask.create(MAPS, f"m{number:03}")
    stream = await watch(ask)
    seen = [await stream.next()]
    await ask.patch(f"{MAPS}/m150", {"data": {"x": "1"}})
    await ask("DELETE", f"{MAPS}/m160")
    await ask.create(MAPS, "m170a")
    seen += [await stream.next() for _ in range(202)]
    events = [(kind, each["metadata"]["name"]) for kind, each in seen]
    assert events[:200] == [("ADDED", f"m{number:03}") for number in range(200)]
    assert "data" not in seen[150][1]
    assert events[200:] == [("MODIFIED", "m150"), ("DELETED", "m160"), ("ADDED", "m170a")]
    await stream.body.aclose()


async def test_a_watcher_slower_than_compaction_has_to_list_again(ask):
    store = ask.server.store
    for number in range(200):
        await ask.create(MAPS, f"m{number:03}")
    stream = await watch(ask)
    assert (await stream.next())[0] == "ADDED"
    for number in range(1000):
        store.write("secrets", Key("default", f"n{number}"), {"metadata": {}})
    store._retention = Retention(changes=10)
    await store.tidy()
    while (last := await stream.next())[0] == "ADDED":
        pass
    assert (last[0], last[1]["code"], last[1]["reason"]) == ("ERROR", 410, "Expired")


async def test_watchers_share_the_bytes_of_a_large_object(ask):
    await ask.create(MAPS, "a", data={"pad": "x" * 100_000})
    first, second = [await watch(ask) for _ in range(2)]
    assert await anext(first.body) is await anext(second.body)
    await ask.patch(f"{MAPS}/a", {"data": {"x": "1"}})
    assert await anext(first.body) is await anext(second.body)
    for each in (first, second):
        await each.body.aclose()


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


async def test_send_initial_events_needs_a_resource_version_match(ask):
    refused = await ask("GET", f"{MAPS}?watch=1&sendInitialEvents=true")
    assert refused.status == 422
    assert refused["details"]["causes"][0]["field"] == "resourceVersionMatch"
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
    async with asyncio.timeout(60):
        assert await reading is None


async def test_bookmarks_are_sent_without_matching_changes(ask, outside, clock):
    query = "&resourceVersion=1&allowWatchBookmarks=true&labelSelector=app%3Dweb"
    stream = await watch(outside, query)
    reading = asyncio.ensure_future(anext(stream.body))
    for number in range(7):
        await ask.create(MAPS, f"n{number}")
        await clock.forward(10)
    bookmark = json.loads(await reading)
    assert bookmark["type"] == "BOOKMARK"
    assert bookmark["object"]["metadata"]["resourceVersion"] == "7"
    await stream.body.aclose()


async def test_idle_watches_of_components_end_with_one_bookmark(ask, clock):
    """So that at rest nothing happens, and the next watch begins where this one has ended."""
    stream = await watch(ask, "&resourceVersion=1&allowWatchBookmarks=true&timeoutSeconds=300")
    reading = asyncio.ensure_future(anext(stream.body))
    await ask.create("/api/v1/namespaces", "other")  # another kind moves the counter
    for _ in range(4):
        await clock.forward(70)
        assert not reading.done()
    await clock.forward(20)
    bookmark = json.loads(await reading)
    assert bookmark["type"] == "BOOKMARK"
    assert bookmark["object"]["metadata"]["resourceVersion"] == str(ask.server.store.revision)
    assert await anext(stream.body, None) is None


async def test_watches_of_components_ended_by_the_store_end_with_a_bookmark(ask):
    """As where a definition changes; but not that they know what was stored since."""
    store = ask.server.store
    stream = await watch(ask, "&resourceVersion=1&allowWatchBookmarks=true")
    await ask.create(MAPS, "a")
    assert await stream.type_and_name() == ("ADDED", "a")
    await ask.create("/api/v1/namespaces", "other")  # another kind moves the counter
    until = store.revision
    store.end_watches("configmaps")
    await ask.create(MAPS, "later")
    kind, bookmark = await stream.next()
    assert (kind, bookmark["metadata"]["resourceVersion"]) == ("BOOKMARK", str(until))
    assert await anext(stream.body, None) is None
    stream = await watch(ask, f"&resourceVersion={until}")
    assert await stream.type_and_name() == ("ADDED", "later")
    await stream.body.aclose()


async def test_a_long_list_is_streamed_in_pieces(ask):
    for number in range(300):
        await ask.create(MAPS, f"n{number}")
    stream = await watch(ask)
    sizes = [len((await anext(stream.body)).splitlines()) for _ in range(5)]
    assert sum(sizes) == 300
    assert max(sizes) <= 64
    await stream.body.aclose()


async def test_large_objects_are_sent_one_by_one(ask):
    """What waits for a slow client to read is a piece, not all that there is."""
    pad = "x" * 300_000
    for number in range(5):
        await ask.create(MAPS, f"n{number}", data={"pad": pad})
    stream = await watch(ask)
    sizes = [len((await anext(stream.body)).splitlines()) for _ in range(5)]
    for number in range(5):
        await ask.patch(f"{MAPS}/n{number}", {"data": {"more": "x"}})
    sizes += [len((await anext(stream.body)).splitlines()) for _ in range(5)]
    assert sizes == [1] * 10
    await stream.body.aclose()


async def test_a_watcher_too_far_behind_gets_an_error(ask):
    store = ask.server.store
    stream = await watch(ask, "&resourceVersion=1&allowWatchBookmarks=true")
    await ask.create(MAPS, "a")
    assert await stream.type_and_name() == ("ADDED", "a")
    await ask.patch(f"{MAPS}/a", {"data": {"x": "1"}})
    revision = store.revision
    for number in range(1000):
        store.write("secrets", Key("default", f"n{number}"), {"metadata": {}})
    await store.tidy()
    store._retention = Retention(changes=10)
    await store.tidy()
    kind, status = await stream.next()
    assert (kind, status["code"], status["reason"]) == ("ERROR", 410, "Expired")
    assert status["message"] == f"too old resource version: {revision - 1} ({store.compacted})"
    with pytest.raises(StopAsyncIteration):
        await anext(stream.body)
    assert store.watches == 0


async def test_watchers_of_one_form_share_the_frames(ask, monkeypatch):
    monkeypatch.setattr(ask.server.rest, "now", lambda: 1_790_000_000.0)  # ages are of a second
    made = []
    frame_object = Presenter.frame_object
    monkeypatch.setattr(
        Presenter,
        "frame_object",
        lambda presenter, record: made.append(record.key.name) or frame_object(presenter, record),
    )
    await ask.create(MAPS, "zero")
    streams = [await watch(ask, headers=TABLE) for _ in range(5)]
    streams += [await watch(ask, headers=METADATA) for _ in range(5)]
    streams += [await watch(ask, "&labelSelector=in") for _ in range(5)]
    for stream in streams[:10]:
        await stream.next()
    readers = [asyncio.create_task(stream.next()) for stream in streams]
    await asyncio.sleep(0)
    made.clear()
    await ask.create(MAPS, "one", labels={"in": "x"})
    events = [await reader for reader in readers]
    assert made == ["one"] * 3
    for alike in (events[:5], events[5:10], events[10:]):
        assert all(each == alike[0] for each in alike)
    readers = [asyncio.create_task(stream.next()) for stream in streams]
    await asyncio.sleep(0)
    made.clear()
    await ask.patch(f"{MAPS}/one", {"metadata": {"labels": None}})
    events = [await reader for reader in readers]
    assert [kind for kind, _ in events] == ["MODIFIED"] * 10 + ["DELETED"] * 5
    assert made == ["one"] * 3
    for stream in streams:
        await stream.body.aclose()


async def test_each_table_watcher_gets_the_columns_once(ask):
    streams = [await watch(ask, "&resourceVersion=1", headers=TABLE) for _ in range(3)]
    for name in "ab":
        await ask.create(MAPS, name)
    pairs = [[await stream.next() for _ in range(2)] for stream in streams]
    for first, second in pairs:
        assert first[1]["columnDefinitions"]
        assert second[1]["columnDefinitions"] is None
        assert (first[1]["rows"][0]["cells"][0], second[1]["rows"][0]["cells"][0]) == ("a", "b")
    for stream in streams:
        await stream.body.aclose()


async def test_watches_of_one_user_are_limited(ask, monkeypatch):
    monkeypatch.setattr("corral.server.registry.watch.MAX_WATCHES_PER_USER", 2)

    async def opened(name):
        user = User(name="whoever they act for", groups=("system:masters",))
        request = Request(method="GET", path=MAPS, query="watch=1", sender=name)
        call = ask.server.call(request, user, parse(MAPS), [])
        return Stream((await ask.server.watches.answer(call)).body)

    await ask.create(MAPS, "a")
    streams = [await opened("bob") for _ in range(2)]
    for stream in streams:
        await stream.next()
    with pytest.raises(TooManyRequests, match='"bob" has 2 watches open') as refusal:
        await opened("bob")
    assert refusal.value.details.retry_after_seconds == 1
    assert await (await opened("eve")).type_and_name() == ("ADDED", "a")
    await streams[0].body.aclose()
    assert await (await opened("bob")).type_and_name() == ("ADDED", "a")


async def test_bookmarks_are_sent_on_request(ask, outside, monkeypatch):
    monkeypatch.setattr("corral.server.registry.watch.BOOKMARK_SECONDS", 0.01)
    stream = await watch(outside, "&resourceVersion=1&allowWatchBookmarks=true")
    await ask("POST", SETS.replace("default/", "nons/"), {})  # refused: nothing new
    await ask.create("/api/v1/namespaces", "other")  # another kind moves the counter
    async with asyncio.timeout(60):
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


async def test_objects_enter_and_leave_the_selection_of_a_watch(ask):
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


async def test_a_watch_of_one_object_sends_no_other(ask):
    by_field = await watch(ask, "&resourceVersion=1&fieldSelector=metadata.name%3Db")
    by_path = await watch(ask, "&resourceVersion=1", path=f"{MAPS}/b")
    old_spelling = await ask.raw("GET", "/api/v1/watch/namespaces/default/configmaps/b")
    await ask.create(MAPS, "a")
    await ask.create(MAPS, "b")
    for stream in (by_field, by_path, Stream(old_spelling.body)):
        assert await stream.type_and_name() == ("ADDED", "b")
        await stream.body.aclose()


async def test_a_watch_of_a_namespace_sends_no_other(ask):
    await ask.create("/api/v1/namespaces", "other")
    stream = await watch(ask, "&resourceVersion=1")
    everywhere = await watch(ask, "&resourceVersion=1", path="/api/v1/configmaps")
    await ask.create("/api/v1/namespaces/other/configmaps", "a")
    await ask.create(MAPS, "b")
    assert await stream.type_and_name() == ("ADDED", "b")
    assert await everywhere.type_and_name() == ("ADDED", "a")
    await stream.body.aclose()
    await everywhere.body.aclose()


async def test_watchers_get_the_requested_version_of_tables(ask):
    older = {"accept": TABLE["accept"].replace("v=v1;", "v=v1beta1;")}
    streams = [await watch(ask, "&resourceVersion=1", headers=each) for each in (TABLE, older)]
    for name in "ab":
        await ask.create(MAPS, name)
    for stream, version in zip(streams, ("v1", "v1beta1"), strict=True):
        for _ in range(2):
            _, table = await stream.next()
            assert table["apiVersion"] == f"meta.k8s.io/{version}"
            assert table["rows"][0]["object"]["apiVersion"] == f"meta.k8s.io/{version}"
        await stream.body.aclose()


async def test_table_watches_send_columns_once(ask):
    stream = await watch(ask, headers=TABLE)
    await ask.create(MAPS, "a")
    await ask.create(MAPS, "b")
    _, first = await stream.next()
    _, second = await stream.next()
    assert first["columnDefinitions"]
    assert second["columnDefinitions"] is None
    assert second["rows"][0]["cells"][0] == "b"
    await stream.body.aclose()


async def test_partial_object_metadata_can_be_watched(ask):
    stream = await watch(ask, headers=METADATA)
    await ask.create(MAPS, "a", data={"x": "1"})
    _, document = await stream.next()
    assert document["kind"] == "PartialObjectMetadata"
    assert "data" not in document
    await stream.body.aclose()


async def test_a_disconnected_watch_is_dropped(ask):
    stream = await watch(ask)
    await ask.create(MAPS, "a")
    await stream.next()
    assert ask.server.store._watches["configmaps"]
    await stream.body.aclose()
    assert not ask.server.store._watches["configmaps"]


async def test_watch_is_false_only_for_false_values(ask):
    for value in ("0", "false", "False"):
        assert (await ask("GET", f"{MAPS}?watch={value}"))["kind"] == "ConfigMapList"
    response = await ask.raw("GET", f"{MAPS}?watch=yes")
    await response.body.aclose()
    for path in (f"{MAPS}?watch=1", "/api/v1/watch/configmaps"):
        assert (await ask("HEAD", path)).status == 405
    sets = "/apis/kubevirt.io/v1/virtualmachineinstancereplicasets"
    assert (await ask("HEAD", f"{sets}?watch=1")).status == 200


async def test_watches_end_with_the_store(ask):
    stream = await watch(ask, "&resourceVersion=1")
    reading = asyncio.ensure_future(anext(stream.body, None))
    await asyncio.sleep(0)
    await ask.server.store.close()
    async with asyncio.timeout(60):
        assert await reading is None
