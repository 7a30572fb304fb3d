"""Slots for guests that boot."""

import asyncio

from corral.node.machine.boot_slots import Boots


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


async def test_the_last_of_all_steps_back_until_another_one_is_up():
    boots = Boots(two)
    told: list[tuple[str, bool]] = []
    first, second = [await boots.take(lambda _: None) for _ in range(2)]
    first.boots(lambda back: told.append(("first", back)))
    second.boots(lambda back: told.append(("second", back)))
    assert told == [("second", True)]
    first.give_back()
    assert told[1:] == [("second", False)]
    third = await boots.take(lambda _: None)
    third.boots(lambda back: told.append(("third", back)))
    assert told[2:] == [("third", True)]
    third.give_back()
    assert told[3:] == [("third", False)]
    second.give_back()
    assert len(told) == 4


async def test_the_only_one_never_steps_back():
    async def one() -> int:
        return 1

    told: list[bool] = []
    with await Boots(one).take(lambda _: None) as slot:
        slot.boots(told.append)
    assert told == []


async def test_who_gives_up_waiting_takes_nothing_along():
    boots = Boots(two)
    first, _second = [await boots.take(lambda _: None) for _ in range(2)]
    waiting = asyncio.create_task(boots.take(lambda _: None))
    await asyncio.sleep(0)
    waiting.cancel()
    first.give_back()
    async with asyncio.timeout(60):
        await boots.take(lambda _: None)


async def test_a_number_that_was_set_counts():
    boots = Boots(two, size=1)
    waited = []
    await boots.take(waited.append)
    async with asyncio.TaskGroup() as tasks:
        second = tasks.create_task(boots.take(waited.append))
        await asyncio.sleep(0)
        assert waited == [1]
        second.cancel()


async def test_who_has_given_its_slot_back_does_not_step_back():
    boots = Boots(two)
    _, last = [await boots.take(lambda _: None) for _ in range(2)]
    last.give_back()
    told: list[bool] = []
    last.boots(told.append)
    assert told == []
