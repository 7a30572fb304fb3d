import asyncio

import pytest

from corral.aio import Background
from corral.reconcile.workqueue import WorkQueue


async def test_a_key_added_twice_is_processed_once():
    queue = WorkQueue[str]()
    queue.add("a")
    queue.add("a")
    async with queue.process_next() as key:
        assert key == "a"
    assert len(queue) == 0


async def test_a_key_added_while_processed_is_processed_again():
    queue = WorkQueue[str]()
    queue.add("a")
    async with queue.process_next():
        queue.add("a")
        assert len(queue) == 0
    async with queue.process_next() as key:
        assert key == "a"


@pytest.mark.looptime
async def test_retries_back_off(looptime):
    queue = WorkQueue[str]()
    started = []

    async def worker():
        while True:
            async with queue.process_next() as key:
                started.append(round(float(looptime), 3))
                queue.retry(key)

    queue.add("a")
    async with Background() as tasks:
        tasks.start(worker(), name="worker")
        await asyncio.sleep(3600)
    queue.close()
    assert started[:5] == [0, 0.005, 0.015, 0.035, 0.075]
    assert len(started) == 21  # an hour, in no time


@pytest.mark.looptime
async def test_the_shorter_of_two_delays_counts(looptime):
    queue = WorkQueue[str]()
    queue.add_after("a", 10)
    queue.add_after("a", 3)
    queue.add_after("a", 20)
    async with queue.process_next():
        assert looptime == 3
    await asyncio.sleep(60)
    assert len(queue) == 0


@pytest.mark.looptime
async def test_adding_a_key_cancels_its_delayed_addition():
    queue = WorkQueue[str]()
    queue.add_after("a", 5)
    queue.add("a")
    async with queue.process_next():
        pass
    await asyncio.sleep(60)
    assert len(queue) == 0


@pytest.mark.looptime
async def test_failing_keys_share_a_rate_limit(looptime):
    queue = WorkQueue[int](retries_a_second=10, retry_burst=100)
    for key in range(200):
        queue.retry(key)
    await asyncio.sleep(1)
    assert 100 <= len(queue) <= 111
    await asyncio.sleep(9.5)
    assert len(queue) == 200


@pytest.mark.looptime
async def test_delayed_retries_can_be_hastened(looptime):
    queue = WorkQueue[str](first_delay=60)
    queue.retry("a1")
    queue.retry("b1")
    queue.add_after("a2", 30)
    queue.retry_now(lambda key: key.startswith("a"))
    async with queue.process_next() as key:
        assert (key, looptime) == ("a1", 0)
    async with queue.process_next() as key:
        assert (key, looptime) == ("a2", 30)
    async with queue.process_next() as key:
        assert (key, looptime) == ("b1", 60)


@pytest.mark.looptime
@pytest.mark.parametrize(("room", "tried"), [(0, 4), (1, 5), (10, 14), (100, 50)])
async def test_each_success_hastens_the_next_key(room, tried):
    queue = WorkQueue[int](first_delay=60)
    for key in range(50):
        queue.retry(key)
    queue.retry_now(lambda _: True)
    order = []
    while len(queue):
        async with queue.process_next() as key:
            order.append(key)
            if len(order) <= room:
                queue.forget(key)
            else:
                queue.retry(key)
    queue.close()
    assert order == list(range(tried))


@pytest.mark.looptime
async def test_a_key_hastened_in_vain_comes_last_next_time():
    queue = WorkQueue[int](first_delay=60)
    for key in range(6):
        queue.retry(key)
    order = []
    for _ in range(2):
        queue.retry_now(lambda _: True)
        while len(queue):
            async with queue.process_next() as key:
                order.append(key)
                queue.retry(key)
    queue.close()
    assert order == [0, 1, 2, 3, 4, 5, 0, 1]


async def test_the_backoff_of_many_failures_is_finite():
    queue = WorkQueue[str](longest_delay=7)
    for _ in range(5000):
        queue.retry("a")
    queue.close()


@pytest.mark.looptime
async def test_metrics_of_a_queue():
    queue = WorkQueue[str]()
    queue.add("a")
    async with queue.process_next() as key:
        queue.retry(key)
    assert (queue.retries, sum(queue.work_durations.counts), sum(queue.queue_durations.counts)) == (
        1,
        1,
        1,
    )
    assert 0 <= queue.work_durations.sum < 60
    assert 0 <= queue.queue_durations.sum < 60


@pytest.mark.looptime
async def test_a_closed_queue_drops_delayed_additions():
    queue = WorkQueue[str]()
    queue.add_after("a", 10)
    queue.close()
    await asyncio.sleep(60)
    assert len(queue) == 0


@pytest.mark.looptime
async def test_a_forgotten_key_can_be_added_again():
    queue = WorkQueue[str]()
    queue.add_after("a", 10)
    queue.close()
    await asyncio.sleep(15)
    assert len(queue) == 0
    queue.add_after("a", 10)
    await asyncio.sleep(15)
    assert len(queue) == 1


@pytest.mark.looptime(start=1e6)
async def test_a_delay_too_small_for_the_clock_moves_it_all_the_same(looptime):
    """Else a reconciler that requeues for the rest of an interval would spin in that instant."""
    queue = WorkQueue[str]()
    queue.add_after("a", 1e-12)
    async with queue.process_next():
        assert asyncio.get_running_loop().time() > 1e6
