"""The asyncio pieces of our own."""

import asyncio
import inspect

import pytest

from corral.aio import Background, Signal, TimeLimit, wait_at_most


@pytest.mark.looptime
async def test_a_signal_wakes_present_and_later_waiters():
    signal = Signal()
    waiting = [asyncio.create_task(signal.wait()) for _ in range(2)]
    await asyncio.sleep(0)
    assert not any(each.done() for each in waiting)
    signal.set()
    signal.clear()  # who waited was woken nevertheless
    async with asyncio.timeout(60):
        await asyncio.gather(*waiting)
    signal.set()
    async with asyncio.timeout(60):
        await signal.wait()
    signal.clear()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(60):
            await signal.wait()


@pytest.mark.looptime
async def test_a_cancelled_waiter_is_removed():
    signal = Signal()
    await wait_at_most(signal, 60)
    assert signal._waiters is None
    waiting = asyncio.create_task(signal.wait())
    await asyncio.sleep(0)
    await wait_at_most(signal, 60)
    assert len(signal._waiters) == 1, "the other still waits"
    signal.set()
    async with asyncio.timeout(60):
        await waiting


async def test_something_begins_once_a_signal_is_set_or_at_once_where_it_is():
    done, early, late = [], Signal(is_set=True), Signal()

    async def work(name):
        done.append(name)

    async with Background() as tasks:
        tasks.when(early, lambda: work("early"), name="early")
        tasks.when(late, lambda: work("late"), name="late")
        await asyncio.sleep(0)
        assert done == ["early"]
        late.set()
        late.set()
        await asyncio.sleep(0)
    assert done == ["early", "late"]
    assert late.is_set()


async def test_waiters_wake_although_the_started_work_fails():
    signal = Signal()

    def fail():
        raise ValueError("cannot begin")

    async def live():
        async with Background() as tasks:
            tasks.when(signal, fail, name="fail")
            signal.set()
            await asyncio.sleep(60)

    waiting = asyncio.create_task(signal.wait())
    await asyncio.sleep(0)
    with pytest.raises(ExceptionGroup) as raised:
        await live()
    assert raised.group_contains(ValueError, match="cannot begin")
    async with asyncio.timeout(60):
        await waiting


@pytest.mark.looptime
async def test_repeated_work_may_cancel_its_own_tasks():
    signal, begun = Signal(), []

    async def work():
        begun.append(1)
        part = asyncio.create_task(asyncio.sleep(60))
        asyncio.get_running_loop().call_soon(part.cancel)
        await part

    async with Background() as tasks:
        tasks.whenever(signal, work, name="work")
        for _ in range(2):
            signal.set()
            await asyncio.sleep(60)
    assert begun == [1, 1]


@pytest.mark.looptime
async def test_repeated_work_never_runs_twice_at_once():
    signal, turns, begun = Signal(), asyncio.Semaphore(0), []

    async def work():
        begun.append(signal.is_set())
        await turns.acquire()

    async with Background() as tasks:
        tasks.whenever(signal, work, name="work")
        assert begun == []
        for _ in range(3):  # while it is at it: once more is enough
            signal.set()
            await asyncio.sleep(0)
        assert begun == [False]
        for _ in range(2):
            turns.release()
            await asyncio.sleep(60)
        assert begun == [False] * 2
        signal.set()
        await asyncio.sleep(60)
        assert begun == [False] * 3


@pytest.mark.looptime
async def test_after_the_end_nothing_begins():
    signal, begun = Signal(), []

    async def work():
        begun.append(1)
        with pytest.raises(asyncio.CancelledError):  # and goes on, which it should not
            await asyncio.sleep(60)

    async with Background() as tasks:
        tasks.whenever(signal, work, name="work")
        signal.set()
        await asyncio.sleep(0)
    signal.set()
    await asyncio.sleep(60)
    assert begun == [1]
    async with Background() as tasks:  # another may have it
        tasks.whenever(signal, work, name="work")
        await asyncio.sleep(0)
    assert begun == [1, 1]


async def test_work_that_starts_too_late_is_refused_and_closed():
    async with Background() as tasks:
        pass
    work = asyncio.sleep(0)
    with pytest.raises(RuntimeError, match="finished"):
        tasks.start(work, name="too late")
    assert inspect.getcoroutinestate(work) == inspect.CORO_CLOSED


async def test_repeated_work_ends_with_the_block():
    signal, begun = Signal(), []

    async def work():
        begun.append(1)
        await asyncio.sleep(60)

    async with asyncio.timeout(60), Background() as tasks:
        tasks.whenever(signal, work, name="work")
        for _ in range(2):
            signal.set()
            await asyncio.sleep(0)
    assert begun == [1]


async def test_after_a_failure_nothing_begins():
    signal, begun = Signal(), []

    async def fail():
        task = asyncio.current_task()
        assert task is not None
        task.add_done_callback(lambda _: signal.set())  # before the block hears of it
        raise ValueError

    async def work():
        begun.append(1)

    async def live():
        async with Background() as tasks:
            tasks.when(signal, work, name="work")
            tasks.start(fail(), name="fail")
            await asyncio.sleep(60)

    with pytest.raises(ExceptionGroup):
        await live()
    assert signal.is_set()
    assert begun == []


@pytest.mark.looptime
async def test_what_takes_too_long_is_broken_off_and_what_follows_has_its_own_time():
    limit, loop = TimeLimit(10), asyncio.get_running_loop()
    for _ in range(3):
        with limit:
            await asyncio.sleep(9)
    begun = loop.time()
    with pytest.raises(TimeoutError), limit:
        await asyncio.sleep(11)
    assert loop.time() - begun == 10
    with limit:
        await asyncio.sleep(9)
    limit.close()


@pytest.mark.looptime
async def test_nothing_is_broken_off_between_two_things():
    limit = TimeLimit(10)
    with limit:
        pass
    await asyncio.sleep(30)
    with limit:
        await asyncio.sleep(9)
    limit.close()


@pytest.mark.looptime
async def test_a_cancelled_block_does_not_time_out():
    limit = TimeLimit(10)

    async def work() -> None:
        with limit:
            await asyncio.sleep(60)

    task = asyncio.create_task(work())
    await asyncio.sleep(5)
    task.cancel()
    await asyncio.wait({task})
    assert task.cancelled()
    limit.close()


@pytest.mark.looptime
async def test_what_fails_in_time_fails_as_it_does():
    limit = TimeLimit(10)
    with pytest.raises(KeyError), limit:
        raise KeyError
    with pytest.raises(TimeoutError, match="of its own"), limit:
        raise TimeoutError("of its own")
    limit.close()
