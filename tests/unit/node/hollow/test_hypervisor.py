"""Simulated machines: what is still to happen to one."""

import asyncio
from contextlib import suppress

import msgspec
import pytest

from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.node.hollow.hypervisor import Hollow
from corral.node.hypervisor import Change, Definition

VMI = msgspec.convert(
    {"metadata": {"name": "a"}, "spec": {"domain": {"devices": {}}}}, VirtualMachineInstance
)


async def begun(directory):
    guest = await Hollow().start(Definition(vmi=VMI, directory=directory))
    await guest.resume()
    await guest.booted(1)
    return guest


async def changes_of(guest):
    """What has happened to it, once nothing more does; its present state is known meanwhile."""
    changes = []

    async def listen():
        async for change in guest.changes():
            changes.append(change)  # noqa: PERF401 - what came before the timeout, too

    with suppress(TimeoutError):
        await asyncio.wait_for(listen(), 60)
    changes.remove(Change.SYNCED)
    return changes


@pytest.mark.looptime
async def test_saved_and_released_guests_have_no_pending_changes(tmp_path):
    guest = await begun(tmp_path)
    assert await changes_of(guest) == [Change.RESUMED, Change.AGENT_CONNECTED]
    await guest.power_down()  # at once, but not before the loop's next turn
    await guest.reset()
    with (tmp_path / "memory").open("wb") as file:
        await guest.save(file.fileno())
    assert await changes_of(guest) == [Change.REBOOTED]
    await guest.resume()
    assert await changes_of(guest) == [Change.RESUMED, Change.AGENT_CONNECTED]
    await guest.power_down()
    await guest.reset()
    await guest.release()
    assert await changes_of(guest) == [Change.REBOOTED]


@pytest.mark.looptime
async def test_past_changes_are_dropped(tmp_path):
    guest = await begun(tmp_path)
    await guest.reset()
    assert await changes_of(guest) == [
        Change.RESUMED,
        Change.AGENT_CONNECTED,
        Change.REBOOTED,
        Change.AGENT_CONNECTED,
    ]
    assert not guest._timers
    await guest.release()
