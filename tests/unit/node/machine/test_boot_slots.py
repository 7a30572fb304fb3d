"""Slots for guests that boot."""

import asyncio

from corral.node.machine.boot_slots import BootSlots


async def two() -> int:
    return 2


async def test_no_more_boot_than_there_are_slots():
    start_boot = BootSlots(two)
    waited = []
    first = await start_boot.acquire(waited.append)
    second = await start_boot.acquire(waited.append)
    assert waited == []
    async with asyncio.TaskGroup() as tasks:
        third = tasks.create_task(start_boot.acquire(waited.append))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert waited == [2]
        assert not third.done()
        second.release()
        second.release()  # counts once
    async with asyncio.TaskGroup() as tasks:
        fourth = tasks.create_task(start_boot.acquire(waited.append))
        await asyncio.sleep(0)
        assert not fourth.done()
        with first:
            pass
        await fourth


async def test_the_last_of_all_steps_back_until_another_one_is_up():
    start_boot = BootSlots(two)
    told: list[tuple[str, bool]] = []
    first, second = [await start_boot.acquire(lambda _: None) for _ in range(2)]
    first.start_boot(lambda back: told.append(("first", back)))
    second.start_boot(lambda back: told.append(("second", back)))
    assert told == [("second", True)]
    first.release()
    assert told[1:] == [("second", False)]
    third = await start_boot.acquire(lambda _: None)
    third.start_boot(lambda back: told.append(("third", back)))
    assert told[2:] == [("third", True)]
    third.release()
    assert told[3:] == [("third", False)]
    second.release()
    assert len(told) == 4


async def test_the_only_one_never_steps_back():
    async def one() -> int:
        return 1

    told: list[bool] = []
    with await BootSlots(one).acquire(lambda _: None) as slot:
        slot.start_boot(told.append)
    assert told == []


async def test_who_gives_up_waiting_takes_nothing_along():
    start_boot = BootSlots(two)
    first, _second = [await start_boot.acquire(lambda _: None) for _ in range(2)]
    waiting = asyncio.create_task(start_boot.acquire(lambda _: None))
    await asyncio.sleep(0)
    waiting.cancel()
    first.release()
    async with asyncio.timeout(60):
        await start_boot.acquire(lambda _: None)


async def test_a_number_that_was_set_counts():
    start_boot = BootSlots(two, size=1)
    waited = []
    await start_boot.acquire(waited.append)
    async with asyncio.TaskGroup() as tasks:
        second = tasks.create_task(start_boot.acquire(waited.append))
        await asyncio.sleep(0)
        assert waited == [1]
        second.cancel()


async def test_who_has_given_its_slot_back_does_not_step_back():
    start_boot = BootSlots(two)
    _, last = [await start_boot.acquire(lambda _: None) for _ in range(2)]
    last.release()
    told: list[bool] = []
    last.start_boot(told.append)
    assert told == []
