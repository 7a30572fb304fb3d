"""Freezes and thaws that cross, fail, or outlive their machine."""

import asyncio
from dataclasses import replace
from types import SimpleNamespace

import pytest
from tests.unit.node.test_doors import Freezing, Machine

from corral.aio import Background
from corral.node.facts import State
from corral.node.freezer import Freezer
from corral.node.hypervisor import GuestError

pytestmark = pytest.mark.looptime


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
async def freezer():
    freezer = Freezer()
    async with Background() as tasks:
        tasks.start(freezer.run(), name="freezer")
        await asyncio.sleep(0)
        yield freezer


async def test_a_thaw_does_not_end_the_time_of_a_freeze_that_came_after_it(freezer, agent, machine):
    await freezer.freeze(machine, 300)
    async with asyncio.TaskGroup() as group:
        group.create_task(freezer.thaw(machine))
        await asyncio.sleep(0.5)
        group.create_task(freezer.freeze(machine, 300))
    assert agent.told == ["freeze", "thaw", "freeze"]
    assert machine.facts.frozen
    await asyncio.sleep(302)
    assert agent.told[3:] == ["thaw"]
    assert not machine.facts.frozen


async def test_who_freezes_for_ever_while_the_time_runs_out_is_heard(freezer, agent, machine):
    await freezer.freeze(machine, 300)
    await asyncio.sleep(298.5)
    await freezer.freeze(machine, 0)
    await asyncio.sleep(10)
    assert agent.told == ["freeze", "freeze"]
    assert machine.facts.frozen


async def test_what_was_to_be_frozen_for_ever_and_did_not_say_so_is_thawed(freezer, agent, machine):
    agent.mute = True
    with pytest.raises(GuestError):
        await freezer.freeze(machine, 0)
    agent.mute = False
    await asyncio.sleep(32)
    assert agent.told == ["freeze", "thaw"]


async def test_a_mute_guest_is_asked_less_and_less(freezer, agent, machine):
    await freezer.freeze(machine, 10)
    agent.mute = True
    await asyncio.sleep(3600)
    assert 8 <= agent.told.count("thaw") <= 13


async def test_a_guest_without_an_agent_cannot_be_frozen(freezer, agent, machine):
    machine.learn(replace(machine.facts, agent_connected=False))
    with pytest.raises(GuestError, match="not connected"):
        await freezer.freeze(machine, 10)
    await asyncio.sleep(60)
    assert agent.told == []


async def test_a_machine_that_has_ended_is_thawed_no_more(freezer, agent, machine):
    await freezer.freeze(machine, 10)
    machine.learn(replace(machine.facts, state=State.ENDED))
    await asyncio.sleep(60)
    assert agent.told == ["freeze"]
    assert not (machine.directory / "frozen.json").exists()
