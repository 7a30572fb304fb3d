"""Slots for guests that boot."""

import asyncio

from corral.node.machine.boot_slots import BootSlots


async def two() -> int:
    return 2


async def test_boots_are_limited_to_the_slots():
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


async def test_the_last_booting_machine_has_low_priority_until_another_is_up():
    start_boot = BootSlots(two)
    lowered: list[tuple[str, bool]] = []
    first, second = [await start_boot.acquire(lambda _: None) for _ in range(2)]
    first.start_boot(lambda back: lowered.append(("first", back)))
    second.start_boot(lambda back: lowered.append(("second", back)))
    assert lowered == [("second", True)]
    first.release()
    assert lowered[1:] == [("second", False)]
    third = await start_boot.acquire(lambda _: None)
    third.start_boot(lambda back: lowered.append(("third", back)))
    assert lowered[2:] == [("third", True)]
    third.release()
    assert lowered[3:] == [("third", False)]
    second.release()
    assert len(lowered) == 4


async def test_a_single_booting_machine_never_has_low_priority():
    async def one() -> int:
        return 1

    lowered: list[bool] = []
    with await BootSlots(one).acquire(lambda _: None) as slot:
        slot.start_boot(lowered.append)
    assert lowered == []


async def test_spares_boot_behind_all_others():
    start_boot = BootSlots(two, size=1)
    order = []

    async def boot(name, *, spare):
        with await start_boot.acquire(lambda _: None, spare=spare):
            order.append(name)

    async with asyncio.TaskGroup() as tasks:
        with await start_boot.acquire(lambda _: None):
            for name in ("spare1", "spare2", "vm1", "vm2"):
                tasks.create_task(boot(name, spare=name.startswith("spare")))
            await asyncio.sleep(0)
    assert order == ["vm1", "vm2", "spare1", "spare2"]


async def test_a_wait_that_is_cancelled_as_it_ends_leaks_no_slot():
    start_boot = BootSlots(two, size=1)
    first = await start_boot.acquire(lambda _: None)
    waiting = asyncio.create_task(start_boot.acquire(lambda _: None))
    await asyncio.sleep(0)
    first.release()
    waiting.cancel()
    await asyncio.wait([waiting])
    assert waiting.cancelled()
    async with asyncio.timeout(60):
        await start_boot.acquire(lambda _: None)


async def test_a_cancelled_wait_leaks_no_slot():
    start_boot = BootSlots(two)
    first, _second = [await start_boot.acquire(lambda _: None) for _ in range(2)]
    waiting = asyncio.create_task(start_boot.acquire(lambda _: None))
    await asyncio.sleep(0)
    waiting.cancel()
    first.release()
    async with asyncio.timeout(60):
        await start_boot.acquire(lambda _: None)


async def test_a_configured_number_of_slots_counts():
    start_boot = BootSlots(two, size=1)
    waited = []
    await start_boot.acquire(waited.append)
    async with asyncio.TaskGroup() as tasks:
        second = tasks.create_task(start_boot.acquire(waited.append))
        await asyncio.sleep(0)
        assert waited == [1]
        second.cancel()


async def test_a_machine_without_a_slot_has_normal_priority():
    start_boot = BootSlots(two)
    _, last = [await start_boot.acquire(lambda _: None) for _ in range(2)]
    last.release()
    lowered: list[bool] = []
    last.start_boot(lowered.append)
    assert lowered == []
