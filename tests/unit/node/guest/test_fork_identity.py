"""The identity of a fork's guest: the program that it runs, and when it is run."""

import asyncio
import base64
import subprocess
from types import SimpleNamespace

import msgspec
import pytest

from corral.aio import Background, Signal
from corral.api.kinds.vmi.fork_state import RENEWED, SHARED
from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.node.guest.fork_identity import SCRIPT, renew
from corral.node.hypervisor import Finished, GuestError
from corral.node.state.machine_state import IDENTITY_SECONDS

VMI = msgspec.convert(
    {
        "metadata": {"name": "fork", "namespace": "default", "uid": "0b7d6a4e-5a3f"},
        "spec": {"domain": {"devices": {}}},
    },
    VirtualMachineInstance,
)


class Agent:
    """An agent whose guest answers as a test says, in order."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.commands = []

    async def set_time(self, _seconds): ...

    async def run(self, command, typed):
        self.commands.append((command, typed))
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


class Machine:
    def __init__(self, agent, *, is_up=True):
        self.guest = SimpleNamespace(agent=agent)
        self.agent_up = Signal(is_set=is_up)
        self.record = SimpleNamespace(fork_of="default/vm")
        self.recorded = []

    def record_fork(self, reason, message="", *, source=""):
        self.record.fork_of = source
        self.recorded.append((reason, message))


def recorder(events):
    return SimpleNamespace(vmi_event=lambda _type, *event: events.append(event))


@pytest.mark.looptime
async def test_the_guest_gets_its_name_and_id_and_a_seed_of_its_own():
    agent, events = Agent(Finished(exit_code=0), Finished(exit_code=0)), []
    for _ in range(2):
        machine = Machine(agent)
        await renew(machine, VMI, recorder(events))
        assert machine.record.fork_of == ""
    (first, seed), (_, other) = agent.commands
    assert first[3:6] == ("sh", "fork", "0b7d6a4e5a3f")
    assert len(base64.b64decode(seed)) == len(base64.b64decode(other)) == 512
    assert seed.endswith(b"\n")
    assert seed != other
    assert [reason for reason, _ in events] == [RENEWED, RENEWED]


@pytest.mark.looptime
async def test_a_program_that_was_killed_without_a_word_has_not_renewed_the_identity():
    killed, events = Finished(exit_code=137), []
    await renew(Machine(Agent(killed, Finished(exit_code=0))), VMI, recorder(events))
    assert [reason for reason, _ in events] == [SHARED, RENEWED]
    assert "exit code 137" in events[0][1]


@pytest.mark.looptime
async def test_a_guest_that_refuses_is_reported_once_and_asked_again():
    refusals = [GuestError("guest-exec is disabled")] * 2
    failure = Finished(exit_code=1, errors=b"no reseed")
    machine, events = Machine(Agent(*refusals, failure, Finished(exit_code=0))), []
    await renew(machine, VMI, recorder(events))
    assert [reason for reason, _ in events] == [SHARED, SHARED, RENEWED]
    assert "of default/vm: guest-exec is disabled" in events[0][1]
    assert "no reseed" in events[1][1]
    assert machine.recorded == [*events[:2], (RENEWED, "")]


@pytest.mark.looptime
async def test_a_guest_without_agent_is_reported():
    machine, events = Machine(Agent(Finished(exit_code=0)), is_up=False), []
    async with Background() as tasks:
        task = tasks.start(renew(machine, VMI, recorder(events)), name="renew")
        await asyncio.sleep(IDENTITY_SECONDS + 1)
        assert [reason for reason, _ in events] == [SHARED]
        assert "no guest agent" in events[0][1]
        machine.agent_up.set()
        await task
    assert machine.record.fork_of == ""


def test_the_script_is_one_of_a_shell():
    assert subprocess.run(["sh", "-n", "-c", SCRIPT], check=False).returncode == 0
