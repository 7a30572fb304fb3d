from types import SimpleNamespace

import pytest

from corral.node.hypervisor import GuestError, RefusedError
from corral.node.machine.clock import set_clock


class Agent:
    """An agent whose command for the clock fails, as in guests without hwclock."""

    def __init__(self, failure: GuestError, exit_code: int = 0) -> None:
        self.failure = failure
        self.exit_code = exit_code
        self.programs: list[str] = []

    async def set_time(self, _seconds: float) -> None:
        raise self.failure

    async def run(self, command):
        self.programs.append(command[0])
        return SimpleNamespace(exit_code=self.exit_code)


@pytest.mark.parametrize(("exit_code", "is_set"), [(0, True), (1, False)])
async def test_a_guest_whose_agent_refuses_runs_date(exit_code, is_set):
    agent = Agent(RefusedError("hwclock: not found"), exit_code)

    assert await set_clock(agent) is is_set
    assert agent.programs == ["date"]


async def test_a_guest_that_does_not_answer_is_asked_nothing_more():
    agent = Agent(GuestError("no answer"))

    assert await set_clock(agent) is False
    assert agent.programs == []
