"""Whose turn it is: flows of users, seats, refusals."""

import asyncio
from collections import Counter

import pytest

from corral.api.errors import TooManyRequests
from corral.api.object import Key
from corral.api.request import Request, Response, User
from corral.server.app import ApiServer
from corral.server.authn.authenticator import ADMINISTRATOR
from corral.server.flowcontrol import fairness
from corral.server.flowcontrol.fairness import (
    MAX_QUEUED_PER_FLOW,
    MAX_SEATS_PER_FLOW,
    SEATS,
    Fairness,
)
from corral.server.request.route import parse
from corral.store import Store

MAPS = "/api/v1/namespaces/default/configmaps"


@pytest.fixture
def store():
    return Store.in_memory()


@pytest.fixture
def turns(store):
    return Fairness(store)


@pytest.fixture
def call(store):
    """Makes requests of users, as they are when they come to take their turns."""
    server = ApiServer(store)

    def made(name, method="GET", path=f"{MAPS}/one", groups=()):
        request = Request(method=method, path=path.partition("?")[0], query=path.partition("?")[2])
        user = User(name=name, groups=groups)
        return server.call(request, user, parse(request.path), [])

    return made


class Slow:
    """Work that lasts until a test ends it."""

    def __init__(self):
        self.begun = []
        self.ends = asyncio.Event()

    async def __call__(self, call):
        self.begun.append(call.user.name)
        await self.ends.wait()
        return Response()

    @property
    def counted(self):
        return Counter(self.begun)


async def at_once(call):
    return Response()


async def turn(times=3):
    for _ in range(times):
        await asyncio.sleep(0)


def start(group, turns, work, calls):
    return [group.create_task(turns.serve(each, work)) for each in calls]


async def test_one_user_never_gets_all_seats(turns, call):
    slow = Slow()
    async with asyncio.TaskGroup() as group:
        start(group, turns, slow, [call("bob")] * 100)
        await turn()
        assert slow.counted == {"bob": MAX_SEATS_PER_FLOW}
        start(group, turns, slow, [call("eve")] * 10)
        await turn()
        assert slow.counted == {"bob": MAX_SEATS_PER_FLOW, "eve": 10}
        slow.ends.set()
    assert slow.counted == {"bob": 100, "eve": 10}
    await turn()
    assert (turns.seats, turns.waiting) == (0, 0)


async def test_reads_do_not_wait_for_the_same_users_writes(turns, call):
    slow = Slow()
    async with asyncio.TaskGroup() as group:
        start(group, turns, slow, [call("bob", "DELETE")] * 100)
        await turn()
        assert (await turns.serve(call("bob"), at_once)).status == 200
        slow.ends.set()


async def test_users_take_turns(turns, call):
    """Who floods waits for itself: of two that want more than there is, each gets the same."""
    order = []

    async def work(call):
        order.append(call.user.name)
        await asyncio.sleep(0)
        return Response()

    async with asyncio.TaskGroup() as group:
        start(group, turns, work, [call("bob")] * 400)
        await turn()
        before = len(order)
        start(group, turns, work, [call("eve")] * 10)
    assert set(order[before : before + 2 * SEATS]) == {"bob", "eve"}
    assert "eve" not in order[before + 2 * SEATS :]


async def test_one_loop_iteration_dispatches_at_most_all_seats(turns, call):
    done = []

    async def work(call):
        done.append(call.user.name)
        return Response()

    async with asyncio.TaskGroup() as group:
        start(group, turns, work, [call("bob")] * 100)
        await asyncio.sleep(0)
        assert len(done) == MAX_SEATS_PER_FLOW


async def test_a_request_with_many_seats_is_not_starved(turns, call, store):
    for number in range(fairness.OBJECTS_PER_SEAT * fairness.MAX_LIST_SEATS):
        store.write("configmaps", Key("default", f"m{number}"), {"metadata": {}})
    await store.tidy()
    slow, lists = Slow(), Slow()
    async with asyncio.TaskGroup() as group:
        for name in ("a", "b", "c", "d"):
            start(group, turns, slow, [call(name)] * (SEATS // 4))
        await turn()
        assert turns.seats == SEATS
        start(group, turns, lists, [call("eve", path=MAPS)])
        await turn()
        later = Slow()
        start(group, turns, later, [call("f")] * 5)
        slow.ends.set()
        await turn()
        assert lists.begun == ["eve"]
        assert turns.seats == fairness.MAX_LIST_SEATS + 5
        lists.ends.set()
        later.ends.set()


@pytest.mark.parametrize(("query", "width"), [("?limit=10", 1), ("?limit=600", 2), ("", 3)])
async def test_a_list_needs_seats_by_its_number_of_objects(turns, call, store, query, width):
    for number in range(fairness.OBJECTS_PER_SEAT * 2):
        store.write("configmaps", Key("default", f"m{number}"), {"metadata": {}})
    await store.tidy()
    slow = Slow()
    async with asyncio.TaskGroup() as group:
        start(group, turns, slow, [call("bob", path=MAPS + query)])
        await turn()
        assert turns.seats == width
        slow.ends.set()


async def test_requests_beyond_the_queue_length_are_rejected(turns, call):
    slow = Slow()
    async with asyncio.TaskGroup() as group:
        start(group, turns, slow, [call("bob")] * (MAX_SEATS_PER_FLOW + MAX_QUEUED_PER_FLOW))
        await turn()
        with pytest.raises(TooManyRequests) as refusal:
            await turns.serve(call("bob"), at_once)
        assert refusal.value.details.retry_after_seconds == fairness.RETRY_SECONDS
        assert turns.rejected == 1
        await turns.serve(call("eve"), at_once)
        slow.ends.set()


async def test_requests_that_wait_too_long_are_rejected(turns, call, monkeypatch):
    monkeypatch.setattr(fairness, "QUEUE_TIMEOUT_SECONDS", 0.01)
    slow = Slow()
    async with asyncio.TaskGroup() as group:
        start(group, turns, slow, [call("bob")] * MAX_SEATS_PER_FLOW)
        await turn()
        with pytest.raises(TooManyRequests):
            await turns.serve(call("bob"), at_once)
        assert turns.waiting == 0
        slow.ends.set()


async def test_administrators_wait_but_are_never_rejected(turns, call, monkeypatch):
    monkeypatch.setattr(fairness, "QUEUE_TIMEOUT_SECONDS", 0.0)
    calls = [call("root", groups=ADMINISTRATOR.groups)] * (
        MAX_SEATS_PER_FLOW + MAX_QUEUED_PER_FLOW + 1
    )
    slow = Slow()
    async with asyncio.TaskGroup() as group:
        start(group, turns, slow, calls)
        await turn()
        assert turns.waiting == MAX_QUEUED_PER_FLOW + 1
        slow.ends.set()
    assert len(slow.begun) == len(calls)


async def test_components_of_this_process_do_not_wait(turns, call):
    slow = Slow()
    async with asyncio.TaskGroup() as group:
        inside = call("system:kube-scheduler")
        inside.request.user = inside.user
        start(group, turns, slow, [inside] * (SEATS + 1))
        await turn()
        assert len(slow.begun) == SEATS + 1
        assert turns.seats == 0
        slow.ends.set()


async def test_cancelled_requests_release_their_seats(turns, call):
    slow = Slow()
    async with asyncio.TaskGroup() as group:
        tasks = start(group, turns, slow, [call("bob")] * (MAX_SEATS_PER_FLOW + 5))
        await turn()
        for task in tasks:
            task.cancel()
    await turn()
    assert (turns.seats, turns.waiting, len(slow.begun)) == (0, 0, MAX_SEATS_PER_FLOW)
    assert (await turns.serve(call("bob"), at_once)).status == 200


async def test_a_request_cancelled_when_dispatched_passes_its_seats_on(turns, call):
    slow, after = Slow(), Slow()
    async with asyncio.TaskGroup() as group:
        first = start(group, turns, slow, [call("bob")] * MAX_SEATS_PER_FLOW)
        await turn()
        waiting = start(group, turns, slow, [call("bob")] * MAX_SEATS_PER_FLOW)
        start(group, turns, after, [call("bob")])
        await turn()
        for task in first:
            task.cancel()
        await turn(1)
        for task in waiting:
            task.cancel()
        await turn(5)
        assert after.begun == ["bob"]
        after.ends.set()
    await turn()
    assert (turns.seats, turns.waiting) == (0, 0)


async def test_a_failed_request_releases_its_seats(turns, call):
    async def fails(call):
        raise ValueError("a fault")

    for _ in range(SEATS + 1):
        with pytest.raises(ValueError, match="a fault"):
            await turns.serve(call("bob"), fails)
    await turn()
    assert turns.seats == 0


async def test_a_large_body_needs_more_seats(turns, call):
    slow = Slow()
    large = call("ann", "POST", MAPS)
    large.request.body = b"x" * (3 << 20)
    tasks = [asyncio.create_task(turns.serve(each, slow)) for each in (large, call("ann", "POST"))]
    await turn()
    assert (turns.seats, turns.waiting) == (MAX_SEATS_PER_FLOW, 1)
    slow.ends.set()
    await asyncio.gather(*tasks)
    await turn()
    assert turns.seats == 0


async def test_a_request_has_no_seats_during_a_webhook(turns, call):
    answers, ends = asyncio.Event(), asyncio.Event()
    seated = []

    async def ask(asking):
        async with asking.without_seats():
            await answers.wait()
        seated.append(asking.user.name)
        await ends.wait()
        return Response()

    asking = [
        asyncio.create_task(turns.serve(call("ann"), ask)) for _ in range(2 * MAX_SEATS_PER_FLOW)
    ]
    await turn(6)
    assert (turns.seats, turns.waiting) == (0, 0)
    await asyncio.wait_for(turns.serve(call("ann"), at_once), 60)
    answers.set()
    await turn(6)
    assert len(seated) == turns.seats == turns.waiting == MAX_SEATS_PER_FLOW
    ends.set()
    await asyncio.gather(*asking)
    await turn(6)
    assert (turns.seats, turns.waiting, len(seated)) == (0, 0, 2 * MAX_SEATS_PER_FLOW)


async def test_a_request_after_a_webhook_precedes_others_of_its_user(turns, call):
    answer, slow, order = asyncio.Event(), Slow(), []

    async def ask(asking):
        async with asking.without_seats():
            await answer.wait()
        order.append("back")
        return Response()

    async def come(_call):
        order.append("new")
        return Response()

    back = asyncio.create_task(turns.serve(call("ann"), ask))
    await turn(6)
    others = [
        asyncio.create_task(turns.serve(call("ann"), slow)) for _ in range(MAX_SEATS_PER_FLOW)
    ]
    await turn(6)
    new = asyncio.create_task(turns.serve(call("ann"), come))
    await turn(6)
    answer.set()
    await turn(6)
    slow.ends.set()
    await asyncio.gather(back, new, *others)
    assert order == ["back", "new"]


async def test_webhooks_in_progress_are_limited_per_user(turns, call, monkeypatch):
    monkeypatch.setattr(fairness, "MAX_WITHOUT_SEATS", 2)
    answer = asyncio.Event()

    async def ask(asking):
        async with asking.without_seats():
            await answer.wait()
        return Response()

    asking = [asyncio.create_task(turns.serve(call("ann"), ask)) for _ in range(2)]
    await turn(6)
    with pytest.raises(TooManyRequests):
        await turns.serve(call("ann"), ask)
    answer.set()
    await asyncio.gather(*asking)
    await turns.serve(call("ann"), ask)
    await turn(6)
    assert turns.seats == 0


@pytest.mark.parametrize("moment", ["outside", "coming back"])
async def test_a_request_cancelled_during_a_webhook_leaks_nothing(turns, call, moment):
    answer, slow = asyncio.Event(), Slow()

    async def ask(asking):
        async with asking.without_seats():
            await answer.wait()
        return Response()

    asking = asyncio.create_task(turns.serve(call("ann"), ask))
    await turn(6)
    others = [
        asyncio.create_task(turns.serve(call("ann"), slow)) for _ in range(MAX_SEATS_PER_FLOW)
    ]
    await turn(6)
    if moment == "coming back":
        answer.set()
        await turn(6)
        assert turns.waiting == 1
    asking.cancel()
    await turn(6)
    assert asking.cancelled()
    slow.ends.set()
    await asyncio.gather(*others)
    await turn(6)
    assert (turns.seats, turns.waiting) == (0, 0)
    assert not turns._flows
