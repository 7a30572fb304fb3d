"""Freezes and thaws that cross, fail, or outlive their machine."""

import asyncio
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest
from tests.unit.node.kubelet.test_vmi_endpoints import Machine

from corral.aio import Background
from corral.node.guest.filesystem_freeze import Freezer
from corral.node.hypervisor import GuestError, RefusedError
from corral.node.state.facts import State

pytestmark = pytest.mark.looptime


class Freezing:
    """An agent that notes its commands, and may be mute."""

    def __init__(self):
        self.commands = []
        self.mute = False

    async def freeze(self):
        await self._take("freeze")

    async def thaw(self):
        await self._take("thaw")

    async def _take(self, word):
        self.commands.append(word)
        if self.mute:
            await asyncio.sleep(60)
            raise GuestError("the guest agent does not answer")


class Slow(Freezing):
    """One that takes its time, for one question after the other."""

    def __init__(self):
        super().__init__()
        self._turn = asyncio.Lock()

    async def _take(self, word):
        async with self._turn:
            await asyncio.sleep(1)
            await super()._take(word)


@pytest.fixture
def agent():
    return Slow()


@pytest.fixture
def machine(agent, tmp_path):
    return Machine(SimpleNamespace(agent=agent), tmp_path)


@pytest.fixture
def quick():
    return Freezing()


@pytest.fixture
def cold(quick, tmp_path):
    """A machine that is frozen now and then."""
    return Machine(SimpleNamespace(agent=quick), tmp_path)


@pytest.fixture
async def freezer():
    freezer = Freezer()
    async with Background() as tasks:
        tasks.start(freezer.run(), name="freezer")
        await asyncio.sleep(0)
        yield freezer


async def test_a_thaw_does_not_cancel_the_timeout_of_a_later_freeze(freezer, agent, machine):
    await freezer.freeze(machine, 300)
    async with asyncio.TaskGroup() as group:
        group.create_task(freezer.thaw(machine))
        await asyncio.sleep(0.5)
        group.create_task(freezer.freeze(machine, 300))
    assert agent.commands == ["freeze", "thaw", "freeze"]
    assert machine.facts.frozen
    await asyncio.sleep(302)
    assert agent.commands[3:] == ["thaw"]
    assert not machine.facts.frozen


async def test_a_freeze_without_timeout_replaces_one_that_is_expiring(freezer, agent, machine):
    await freezer.freeze(machine, 300)
    await asyncio.sleep(298.5)
    await freezer.freeze(machine, 0)
    await asyncio.sleep(10)
    assert agent.commands == ["freeze", "freeze"]
    assert machine.facts.frozen


async def test_an_unacknowledged_freeze_without_timeout_is_thawed(freezer, agent, machine):
    agent.mute = True
    with pytest.raises(GuestError):
        await freezer.freeze(machine, 0)
    assert machine.facts.frozen, "perhaps: it is not to be blamed meanwhile"
    agent.mute = False
    await asyncio.sleep(32)
    assert agent.commands == ["freeze", "thaw"]
    assert not machine.facts.frozen


async def test_a_rejected_freeze_leaves_the_guest_unfrozen(freezer, quick, cold):
    async def refuse():
        raise RefusedError("the guest agent refuses")

    quick.freeze = refuse
    for before in (None, False, True):
        cold.set_facts(replace(cold.facts, frozen=before))
        with pytest.raises(RefusedError):
            await freezer.freeze(cold, 300)
        assert cold.facts.frozen is before


async def test_a_silent_guest_is_queried_with_backoff(freezer, agent, machine):
    await freezer.freeze(machine, 10)
    agent.mute = True
    await asyncio.sleep(3600)
    assert 8 <= agent.commands.count("thaw") <= 13
    agent.mute = False  # the last thaw, after the test, is in real time


async def test_a_guest_without_an_agent_cannot_be_frozen(freezer, agent, machine):
    machine.set_facts(replace(machine.facts, agent_connected=False))
    with pytest.raises(GuestError, match="not connected"):
        await freezer.freeze(machine, 10)
    await asyncio.sleep(60)
    assert agent.commands == []


async def test_a_finished_machine_is_not_thawed(freezer, agent, machine):
    await freezer.freeze(machine, 10)
    machine.set_facts(replace(machine.facts, state=State.ENDED))
    await asyncio.sleep(60)
    assert agent.commands == ["freeze"]
    assert not (machine.directory / "frozen.json").exists()


async def test_a_freeze_with_a_timeout_is_thawed(freezer, quick, cold):
    await freezer.freeze(cold, 300)
    await asyncio.sleep(299)
    assert quick.commands == ["freeze"]
    assert cold.facts.frozen
    await asyncio.sleep(2)
    assert quick.commands == ["freeze", "thaw"]
    assert not cold.facts.frozen
    await freezer.freeze(cold, 300)
    await freezer.thaw(cold)
    await asyncio.sleep(301)
    assert quick.commands == ["freeze", "thaw", "freeze", "thaw"]
    await freezer.freeze(cold, 300)
    await freezer.freeze(cold, 0)
    await asyncio.sleep(301)
    assert cold.facts.frozen, "for ever"


async def test_a_guest_with_an_unknown_freeze_status_is_thawed(freezer, quick, cold):
    await freezer.freeze(cold, 300)
    quick.mute = True
    with pytest.raises(GuestError):
        await freezer.freeze(cold, 200)
    assert cold.facts.frozen, "it was before"
    await asyncio.sleep(300)
    assert quick.commands[:3] == ["freeze", "freeze", "thaw"]
    assert cold.facts.frozen
    quick.mute = False
    await asyncio.sleep(100)
    assert not cold.facts.frozen, "it was tried again"


async def test_shutdown_thaws_guests_whose_timeout_would_be_lost(quick, cold):
    for mute in (False, True):
        quick.mute = False
        freezer = Freezer()
        async with Background() as tasks:
            tasks.start(freezer.run(), name="freezer")
            await asyncio.sleep(0)
            await freezer.freeze(cold, 300)
            quick.mute = mute
            before = asyncio.get_running_loop().time()
        assert quick.commands[-1] == "thaw"
        assert asyncio.get_running_loop().time() - before < 6


async def test_a_restarted_manager_thaws_in_time_or_late(freezer, quick, cold):
    note = cold.directory / "frozen.json"
    freezer.resume_timer(cold)
    note.write_text(f'{{"thaw_at": {time.time() + 100}}}')
    freezer.resume_timer(cold)
    freezer.resume_timer(cold)
    await asyncio.sleep(98)
    assert not quick.commands
    await asyncio.sleep(3)
    assert quick.commands == ["thaw"]
    assert not note.exists()
    note.write_text('{"thaw_at": 1}')
    freezer.resume_timer(cold)
    await asyncio.sleep(1)
    assert quick.commands == ["thaw", "thaw"]


async def test_a_freeze_is_recorded_before_it_begins(freezer, quick, cold):
    quick.mute = True
    freezing = asyncio.create_task(freezer.freeze(cold, 300))
    await asyncio.sleep(0)
    assert quick.commands == ["freeze"]
    assert (cold.directory / "frozen.json").exists()
    quick.mute = False
    freezing.cancel()


async def test_a_freeze_without_an_agent_has_kubevirts_message(freezer, machine):
    machine.facts = replace(machine.facts, agent_connected=False)
    with pytest.raises(GuestError) as refused:
        await freezer.freeze(machine, 0)
    assert str(refused.value) == (
        "unexpected return code 400 (400 Bad Request), message: server error. command Freeze "
        "failed: \"LibvirtError(Code=86, Domain=10, Message='Guest agent is not responding: QEMU "
        "guest agent is not connected')\""
    )
