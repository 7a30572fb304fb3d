"""The watchdog of a node as its agent starts, adopts and ends it."""

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from corral.aio import Background
from corral.api.errors import Forbidden, NotFound
from corral.node.agent.self_fencing import WATCHDOG, SelfFencing, watchdog
from corral.node.fencing.lease import NodeLease
from corral.node.host.proc import runs
from corral.node.state.machine_record import Record

UNUSED = SimpleNamespace(values=list)


async def test_the_next_agent_takes_the_watchdog_over(tmp_path):
    NodeLease(tmp_path)
    first, second = watchdog(tmp_path), watchdog(tmp_path)
    try:
        pid = (await first.ensure()).identity.pid
        first.release()
        assert (await second.ensure()).identity.pid == pid
        assert Path(f"/proc/{pid}/exe").exists()
        assert os.getsid(pid) == pid
    finally:
        await second.end()
    assert not runs(tmp_path / WATCHDOG)


async def test_it_ends_if_the_node_says_that_the_agent_was_stopped(tmp_path):
    fencing = SelfFencing(None, "a", NodeLease(tmp_path), UNUSED, watchdog(tmp_path))
    async with Background() as tasks:
        await fencing.start(tasks)
        assert fencing.condition().active
        assert runs(tmp_path / WATCHDOG)

        async def written():
            return True

        await fencing.end(written)
        assert not runs(tmp_path / WATCHDOG)
        assert fencing.condition().reason == "AgentStopped"


async def test_it_stays_if_the_api_server_cannot_be_told(tmp_path):
    helper = watchdog(tmp_path)
    fencing = SelfFencing(None, "a", NodeLease(tmp_path), UNUSED, helper)
    async with Background() as tasks:
        await fencing.start(tasks)

        async def not_written():
            return False

        await fencing.end(not_written)
        assert runs(tmp_path / WATCHDOG)
    await helper.end()


async def test_a_node_without_its_watchdog_says_so(tmp_path):
    helper = watchdog(tmp_path)
    fencing = SelfFencing(None, "a", NodeLease(tmp_path), UNUSED, helper)
    condition = fencing.condition()
    assert not condition.active
    assert "no watchdog" in condition.message


class Api:
    """Lists nothing of this node, and answers requests for one object."""

    def __init__(self, pod, vmi):
        self.answers = {"pods": pod, "virtualmachineinstances": vmi}

    async def list(self, _view, **_selectors):
        return SimpleNamespace(items=[])

    async def get(self, _view, _name, _namespace, *, kind):
        answer = self.answers[kind.resource.partition(".")[0]]
        if isinstance(answer, Exception):
            raise answer
        return SimpleNamespace(metadata=SimpleNamespace(uid=answer))


class Machines:
    """One machine, which ends when it is stopped."""

    def __init__(self):
        self.record = Record(namespace="a", instance="vm", uid="u", pod="p", pod_uid="q")
        self.facts = SimpleNamespace(ended=False)
        self.stopped, self.awaited = [], []

    def values(self):
        return [self]

    def stop(self, seconds):
        self.stopped.append(seconds)

    async def ended(self, pods, _seconds):
        self.awaited += pods
        return True


@pytest.mark.parametrize(
    ("pod", "vmi", "ends"),
    [
        ("q", "u", False),  # damaged on the server's disk
        ("q", "another", True),
        ("another", "u", True),
        (NotFound("gone"), Forbidden("a VMI of that name runs on another node"), True),
        ("q", NotFound("gone"), True),
    ],
)
async def test_what_was_replaced_is_ended_and_awaited(tmp_path, pod, vmi, ends):
    machines = Machines()
    fencing = SelfFencing(Api(pod, vmi), "a", NodeLease(tmp_path), machines, None)
    await fencing.end_replaced()
    assert machines.stopped == ([0] if ends else [])
    assert [key.name for key in machines.awaited] == (["p"] if ends else [])
