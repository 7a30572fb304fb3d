import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from lightkube.models.core_v1 import ConfigMap, Event
from tests.unit.reconcile.conftest import ADMIN

from corral.aio import Background
from corral.api.object import Key
from corral.client.client import Client
from corral.client.transport import InProcess
from corral.reconcile.events import BURST, COMBINED, EventBroadcaster, EventCorrelator, EventKey

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def event_key(message="hello", name="a", reason="Greeted"):
    return EventKey(
        "test", "", ("v1", "ConfigMap", "default", name, "uid"), "Normal", reason, message
    )


def test_repeated_events_are_counted():
    correlator = EventCorrelator()
    first = correlator.record(event_key(), NOW)
    assert (first.count, first.name) == (1, "")
    first.name = "a.1"
    again = correlator.record(event_key(), NOW + timedelta(seconds=1))
    assert (again.count, again.name, again.first) == (2, "a.1", NOW)


def test_many_different_messages_for_one_reason_become_one_event():
    correlator = EventCorrelator()
    messages = [
        correlator.record(event_key(f"message {number}"), NOW).message for number in range(12)
    ]
    assert messages[:9] == [f"message {number}" for number in range(9)]
    assert messages[9:] == [f"{COMBINED}message {number}" for number in range(9, 12)]
    assert correlator.record(event_key("message 12"), NOW).count == 4
    later = NOW + timedelta(seconds=601)
    assert correlator.record(event_key("calm again"), later).message == "calm again"


def test_slowly_arriving_messages_are_aggregated():
    """What counts is the time since the last one, as in client-go's EventAggregator."""
    correlator = EventCorrelator()
    moments = [NOW + timedelta(seconds=600 * number) for number in range(10)]
    recorded = [correlator.record(event_key(f"message {at}"), at) for at in moments]
    assert [each.message.startswith(COMBINED) for each in recorded] == [False] * 9 + [True]


def others(correlator, count):
    for number in range(count):
        correlator.record(event_key(name=f"other{number}"), NOW)


@pytest.mark.parametrize(("others_between", "count"), [(4095, 2), (4096, 1)])
def test_the_number_of_cached_events_is_limited(others_between, count):
    """client-go's LRU caches hold 4096."""
    correlator = EventCorrelator()
    correlator.record(event_key(), NOW)
    others(correlator, others_between)
    assert correlator.record(event_key(), NOW).count == count


def test_frequent_events_stay_cached():
    correlator = EventCorrelator()
    correlator.record(event_key(), NOW)
    others(correlator, 4095)
    correlator.record(event_key(), NOW)
    correlator.record(event_key(name="one more"), NOW)
    assert correlator.record(event_key(), NOW).count == 3


def test_events_of_an_object_are_rate_limited():
    correlator = EventCorrelator()
    recorded = [correlator.record(event_key("x", reason=f"R{n}"), NOW) for n in range(BURST + 5)]
    assert [each is None for each in recorded] == [False] * BURST + [True] * 5
    assert correlator.record(event_key("x", name="b"), NOW) is not None
    later = NOW + timedelta(seconds=300)
    assert correlator.record(event_key("x", reason="R"), later) is not None
    assert correlator.record(event_key("x", reason="S"), later) is None


@pytest.mark.looptime
async def test_events_have_the_fields_that_kubectl_shows(client):
    made = await client.create(ConfigMap, {"metadata": {"name": "a", "namespace": "default"}})
    moment = NOW
    events = EventBroadcaster(client, lambda: moment)
    recorder = events.recorder("tester", "node0")
    async with Background() as tasks:
        tasks.start(events.run(), name="events")
        for _ in range(3):
            recorder.event(made, "Warning", "Failed", "it broke", action="Binding")
            moment += timedelta(seconds=10)
        await asyncio.sleep(1)
        [event] = (await client.list(Event)).items
        assert (event.type, event.reason, event.message) == ("Warning", "Failed", "it broke")
        assert (event.count, event.action) == (3, "Binding")
        assert event.source.component == "tester"
        assert event.source.host == "node0"
        assert event.involvedObject.uid == made.metadata.uid
        assert event.involvedObject.kind == "ConfigMap"
        assert (event.lastTimestamp - event.firstTimestamp).total_seconds() == 20
        assert event.metadata.name.startswith("a.")
        await client.delete(Event, Key("default", event.metadata.name))
        recorder.event(made, "Warning", "Failed", "it broke")
        await asyncio.sleep(1)
        [event] = (await client.list(Event)).items
        assert event.count == 1


async def written(events):
    async with Background() as tasks:
        tasks.start(events.run(), name="events")
        await asyncio.sleep(1)


@pytest.mark.looptime
async def test_events_repeated_before_their_write_are_written_once(client, store):
    moment = NOW
    events = EventBroadcaster(client, lambda: moment)
    about = {"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "n"}
    for _ in range(5):
        events.recorder("tester").event(about, "Normal", "Noise", "again")
        moment += timedelta(seconds=10)
    before = store.revision
    await written(events)
    assert store.revision == before + 1
    [event] = (await client.list(Event)).items
    assert event.count == 5
    assert (event.lastTimestamp - event.firstTimestamp).total_seconds() == 40
    events.recorder("tester").event(about, "Normal", "Noise", "again")
    await written(events)
    [event] = (await client.list(Event)).items
    assert event.count == 6


@pytest.mark.looptime
async def test_waiting_events_share_a_commit_and_keep_their_order(client, store):
    events = EventBroadcaster(client, lambda: NOW)
    for number in range(BURST):
        about = {"apiVersion": "v1", "kind": "Node", "name": f"n{number}", "uid": "n"}
        events.recorder("tester").event(about, "Normal", "Noise", f"{number}")
    before = sum(store.commits.counts)
    await written(events)
    assert sum(store.commits.counts) - before == 1
    stored = sorted(
        (await client.list(Event)).items, key=lambda one: int(one.metadata.resourceVersion)
    )
    assert [event.message for event in stored] == [f"{number}" for number in range(BURST)]


@pytest.mark.looptime
async def test_a_rejected_event_does_not_affect_others(client):
    events = EventBroadcaster(client, lambda: NOW)
    for namespace in ("default", "nowhere", "default"):
        about = {"kind": "Pod", "namespace": namespace, "name": "a", "uid": namespace}
        events.recorder("tester").event(about, "Normal", "Noise", namespace)
    await written(events)
    assert [event.message for event in (await client.list(Event)).items] == ["default"]


@pytest.mark.looptime
async def test_recording_never_blocks(client):
    events = EventBroadcaster(client, lambda: NOW)
    about = {"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "n"}
    for number in range(10_000):
        events.recorder("tester").event(about, "Normal", "Noise", f"{number}")
    async with Background() as tasks:
        tasks.start(events.run(), name="events")
        await asyncio.sleep(10)
    written = (await client.list(Event)).items
    assert 1 <= len(written) <= BURST
    assert {event.metadata.namespace for event in written} == {"default"}


class Slow:
    """A server that answers nothing for a minute."""

    def __init__(self, to) -> None:
        self._to = to
        self._begun = asyncio.get_running_loop().time()

    async def send(self, request):
        if asyncio.get_running_loop().time() < self._begun + 60:
            await asyncio.Event().wait()
        return await self._to.send(request)


@pytest.mark.looptime
async def test_an_unresponsive_server_delays_events_for_a_limited_time(server, client):
    slow = Client(Slow(InProcess(server.handle, ADMIN)))
    events = EventBroadcaster(slow, lambda: NOW)
    about = {"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "n"}
    async with Background() as tasks:
        tasks.start(events.run(), name="events")
        events.recorder("tester").event(about, "Normal", "Noise", "lost")
        await asyncio.sleep(45)
        assert (await client.list(Event)).items == []
        await asyncio.sleep(30)
        events.recorder("tester").event(about, "Normal", "Noise", "noise")
        await asyncio.sleep(1)
    assert [event.message for event in (await client.list(Event)).items] == ["noise"]


def test_a_clock_set_back_does_not_rate_limit():
    correlator = EventCorrelator()
    assert correlator.record(event_key(), NOW) is not None
    back = NOW - timedelta(days=1)
    assert correlator.record(event_key(), back) is not None
