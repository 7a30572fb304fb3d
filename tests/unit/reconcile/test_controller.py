import asyncio
import time

import pytest
from structlog.testing import capture_logs

from corral.aio import Background
from corral.api.errors import Conflict, Details, Forbidden, Unavailable
from corral.reconcile.controller import Controller, Result, TerminalError
from corral.reconcile.workqueue import WorkQueue

pytestmark = pytest.mark.looptime


class Ready:
    async def synced(self):
        await asyncio.sleep(5)


async def times(looptime, reconcile, seconds):
    queue = WorkQueue[str]()
    started = []

    async def noted(key):
        started.append(round(float(looptime), 3))
        return await reconcile(len(started))

    controller = Controller("test", noted, queue=queue, sources=[Ready()])
    queue.add("a")
    async with Background() as tasks:
        tasks.start(controller.run(), name="controller")
        await asyncio.sleep(seconds)
    return started


async def test_nothing_is_reconciled_before_the_caches_are_synced(looptime):
    async def done(_):
        return None

    assert await times(looptime, done, 100) == [5]


@pytest.mark.parametrize("error", [Unavailable("away"), Conflict("old"), KeyError("a fault")])
async def test_a_failure_is_retried_until_it_succeeds(looptime, error):
    async def fails_twice(attempt):
        if attempt < 3:
            raise error

    assert await times(looptime, fails_twice, 100) == [5, 5.005, 5.015]


async def test_a_repeated_failure_is_logged_once_per_cause(looptime):
    def full(attempt, quota):
        name = f"test{attempt:05}"
        return Forbidden(f'pods "{name}" is forbidden: {quota}', details=Details(name=name))

    async def fails(attempt):
        if attempt in (1, 2, 5):
            raise full(attempt, "exceeded quota: a")
        if attempt == 3:
            raise full(attempt, "exceeded quota: b")
        if attempt == 4:
            return Result(requeue_after=1)
        return None

    with capture_logs() as logged:
        await times(looptime, fails, 100)
    assert [each["error"] for each in logged if each["log_level"] == "warning"] == [
        'pods "test00001" is forbidden: exceeded quota: a',
        'pods "test00003" is forbidden: exceeded quota: b',
        'pods "test00005" is forbidden: exceeded quota: a',
    ]


async def test_terminal_errors_are_not_retried(looptime):
    async def hopeless(_):
        raise TerminalError("spec.selector does not match")

    assert await times(looptime, hopeless, 5000) == [5]


async def test_a_result_can_requeue_after_a_time(looptime):
    async def twice(attempt):
        return Result(requeue_after=10) if attempt == 1 else None

    assert await times(looptime, twice, 100) == [5, 15]


async def test_a_stuck_reconcile_times_out(looptime):
    async def stuck(attempt):
        if attempt == 1:
            await asyncio.Event().wait()

    assert await times(looptime, stuck, 1000) == [5, 305.005]


async def test_one_key_is_never_reconciled_concurrently():
    queue = WorkQueue[str]()
    running = 0
    most = 0

    async def slow(_):
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(1)
        running -= 1

    controller = Controller("test", slow, queue=queue, sources=[], workers=4)
    async with Background() as tasks:
        tasks.start(controller.run(), name="controller")
        for _ in range(10):
            queue.add("a")
            await asyncio.sleep(0.3)
    assert most == 1


async def test_a_controller_reconciles_as_many_keys_at_once_as_it_has_workers(looptime):
    queue = WorkQueue[str]()
    begun = []

    async def slow(key):
        begun.append((round(float(looptime)), key))
        await asyncio.sleep(10)

    def workers():
        return sum(task.get_name().startswith("test-") for task in asyncio.all_tasks())

    controller = Controller("test", slow, queue=queue, sources=[], workers=3)
    async with Background() as tasks:
        tasks.start(controller.run(), name="controller")
        await asyncio.sleep(1)
        assert workers() == 1, "the others are started with the keys"
        for key in "abcde":
            queue.add(key)
        await asyncio.sleep(30)
        assert workers() == 3
    assert begun == [(1, "a"), (1, "b"), (1, "c"), (11, "d"), (11, "e")]


async def test_no_task_outlives_a_controller(looptime):
    """A key that was to be looked at later would keep the process's loop busy for a dead one."""
    queue = WorkQueue[str]()

    async def later(_):
        return Result(requeue_after=100)

    controller = Controller("test", later, queue=queue, sources=[])
    async with Background() as tasks:
        tasks.start(controller.run(), name="controller")
        queue.add("a")
        await asyncio.sleep(1)
    await asyncio.sleep(200)
    assert (len(queue), queue.adds) == (0, 1)


async def test_each_reconcile_is_counted_and_measured():
    queue = WorkQueue[str]()
    begun = time.monotonic()

    async def mixed(key):
        if key == "b":
            raise TerminalError("no retry")

    controller = Controller("test", mixed, queue=queue, sources=[])
    async with Background() as tasks:
        tasks.start(controller.run(), name="controller")
        for key in "abc":
            queue.add(key)
        await asyncio.sleep(1)
    assert controller.results == {"success": 2, "error": 1}
    assert sum(controller.durations.counts) == 3
    assert 0 < controller.durations.sum <= time.monotonic() - begun
