"""Work in threads reports its progress, and stops when nobody waits for it."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from corral.node.images.progress import Meter, Stopped, in_thread


async def test_progress_is_reported_on_the_loop_and_ends_with_the_total():
    seen, threads = [], set()

    def report(progress):
        seen.append(progress.done_bytes)
        threads.add(threading.get_ident())

    def work(meter):
        for _ in range(1000):
            meter.advance(1)
        return "done"

    assert await in_thread(work, Meter(report, "unpack", 1000)) == "done"
    await asyncio.sleep(0)
    assert seen[-1] == 1000
    assert len(seen) < 50, "not every byte is news"
    assert threads == {threading.get_ident()}


async def test_repeated_bytes_do_not_exceed_the_total():
    seen = []
    meter = Meter(seen.append, "download", 10)
    for _ in range(3):
        meter.advance(8)
    await asyncio.sleep(0)
    assert max(each.done_bytes for each in seen) == 10


async def test_a_cancelled_waiter_stops_the_thread():
    begun, ended = threading.Event(), threading.Event()

    def work(meter):
        begun.set()
        try:
            while True:
                meter.advance(1)
        except Stopped:
            ended.set()
            raise

    task = asyncio.create_task(in_thread(work, Meter(lambda _: None, "unpack")))
    assert await asyncio.to_thread(begun.wait, 60)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await asyncio.to_thread(ended.wait, 60)


async def test_long_tasks_leave_threads_for_short_ones():
    go = threading.Event()
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
    work = [asyncio.create_task(in_thread(lambda _: go.wait(60), Meter(print, ""))) for _ in "12"]
    await asyncio.sleep(0)
    async with asyncio.timeout(50):
        await asyncio.to_thread(go.set)
    assert await asyncio.gather(*work) == [True, True]
