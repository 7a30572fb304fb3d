"""Slots for guests that boot."""

import asyncio

from corral.node.boots import Boots


async def two() -> int:
    return 2


async def test_no_more_boot_than_there_are_slots():
    boots = Boots(two)
    waited = []
    first = await boots.take(waited.append)
    second = await boots.take(waited.append)
    assert waited == []
    async with asyncio.TaskGroup() as tasks:
        third = tasks.create_task(boots.take(waited.append))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert waited == [2]
        assert not third.done()
        second.give_back()
        second.give_back()  # counts once
    async with asyncio.TaskGroup() as tasks:
        fourth = tasks.create_task(boots.take(waited.append))
        await asyncio.sleep(0)
        assert not fourth.done()
        with first:
            pass
        await fourth


async def test_who_gives_up_waiting_takes_nothing_along():
    boots = Boots(two)
    first, _second = [await boots.take(lambda _: None) for _ in range(2)]
    waiting = asyncio.create_task(boots.take(lambda _: None))
    await asyncio.sleep(0)
    waiting.cancel()
    first.give_back()
    async with asyncio.timeout(1):
        await boots.take(lambda _: None)
