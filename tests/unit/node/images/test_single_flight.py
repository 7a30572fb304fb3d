"""Many waiters, one piece of work."""

import asyncio

import pytest

from corral.node.images.error import ImageError, pull_failed
from corral.node.images.progress import Progress, silent
from corral.node.images.single_flight import SingleFlight


class Work:
    """Work that ends on request, and counts how often it was begun."""

    def __init__(self, outcome="done"):
        self.outcome = outcome
        self.begun = 0
        self.started = asyncio.Event()
        self.go = asyncio.Event()

    async def __call__(self, report):
        self.begun += 1
        self.started.set()
        report(Progress("download", 1, 2))
        await self.go.wait()
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return self.outcome


@pytest.fixture
async def flights():
    return SingleFlight()


async def begin(flights, work, count, report=silent):
    tasks = [asyncio.create_task(flights.run("key", work, report)) for _ in range(count)]
    await work.started.wait()
    return tasks


async def test_all_waiters_get_the_result(flights):
    work, seen = Work(), []
    tasks = await begin(flights, work, 5, seen.append)
    work.go.set()
    assert await asyncio.gather(*tasks) == ["done"] * 5
    assert work.begun == 1
    assert len(seen) == 5, "each waiter hears of progress"


async def test_all_waiters_get_the_failure(flights):
    work = Work(pull_failed("no", "hint"))
    tasks = await begin(flights, work, 3)
    work.go.set()
    failures = await asyncio.gather(*tasks, return_exceptions=True)
    assert all(type(each) is ImageError for each in failures)
    assert {(str(each), each.hint) for each in failures} == {("no", "hint")}
    assert len(set(map(id, failures))) == 3
    assert work.begun == 1


async def test_the_next_waiter_takes_over_from_a_cancelled_one(flights):
    work = Work()
    first, second, third = await begin(flights, work, 3)
    first.cancel()
    await asyncio.wait([first])
    work.go.set()
    assert await asyncio.gather(second, third) == ["done", "done"]
    assert work.begun == 2


async def test_a_queued_waiter_can_be_cancelled(flights):
    work = Work()
    first, second = await begin(flights, work, 2)
    second.cancel()
    await asyncio.wait([second])
    work.go.set()
    assert await first == "done"


async def test_a_later_caller_starts_a_new_flight(flights):
    work = Work()
    (first,) = await begin(flights, work, 1)
    work.go.set()
    await first
    assert await flights.run("key", work, silent) == "done"
    assert work.begun == 2


async def test_a_repeated_call_before_others_are_done_starts_a_new_flight(flights):
    work = Work()

    async def twice():
        await flights.run("key", work, silent)
        return await flights.run("key", work, silent)

    tasks = [asyncio.create_task(twice()), *await begin(flights, work, 3)]
    work.go.set()
    await asyncio.gather(*tasks)
    assert work.begun == 2


async def test_no_state_remains_after_all_waiters(flights):
    work = Work()
    tasks = await begin(flights, work, 3)
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    assert flights._flights == {}


async def test_programming_errors_are_not_shared(flights):
    """The one who met it gets it; the next tries for himself."""
    work = Work(KeyError("bug"))
    first, second = await begin(flights, work, 2)
    work.go.set()
    outcomes = await asyncio.gather(first, second, return_exceptions=True)
    assert [type(each) for each in outcomes] == [KeyError, KeyError]
    assert work.begun == 2
    assert flights._flights == {}
