"""The watchdog of a node as its agent starts, adopts and ends it."""

import asyncio
import os
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from corral.aio import Background
from corral.api.errors import Forbidden, NotFound
from corral.node.agent.self_fencing import WATCHDOG, SelfFencing, watchdog
from corral.node.fencing.lease import STOPPED, NodeLease
from corral.node.fencing.watchdog import RENEWED, now
from corral.node.host.proc import runs
from corral.node.network.netlink import NetworkError
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


async def test_the_watchdog_ends_once_the_node_reports_a_stopped_agent(tmp_path):
    fencing = SelfFencing(None, "a", NodeLease(tmp_path), UNUSED, watchdog(tmp_path))
    async with Background() as tasks:
        await fencing.start(tasks)
        assert fencing.condition().active
        assert runs(tmp_path / WATCHDOG)
        await fencing.end(written)
        assert not runs(tmp_path / WATCHDOG)
        assert fencing.condition().reason == "AgentStopped"


async def test_the_watchdog_stays_if_the_api_server_is_unavailable(tmp_path):
    helper = watchdog(tmp_path)
    fencing = SelfFencing(None, "a", NodeLease(tmp_path), UNUSED, helper)
    async with Background() as tasks:
        await fencing.start(tasks)

        async def not_written():
            return False

        await fencing.end(not_written)
        assert runs(tmp_path / WATCHDOG)
    await helper.end()


async def test_a_node_without_a_watchdog_reports_it_in_its_condition(tmp_path):
    helper = watchdog(tmp_path)
    fencing = SelfFencing(None, "a", NodeLease(tmp_path), UNUSED, helper)
    condition = fencing.condition()
    assert not condition.active
    assert "no watchdog" in condition.message


class Running:
    """An exclusive machine that runs."""

    def __init__(self):
        self.record = Record(
            namespace="a", instance="vm", uid="u", pod="p", pod_uid="q", exclusive=True
        )
        self.facts = SimpleNamespace(ended=False)
        self.fenced = False

    def fence(self):
        self.fenced = True

    def retry(self): ...


class Node:
    """A node whose agents are started one after the other; ``machine`` runs on it."""

    def __init__(self, directory):
        self.directory = directory
        self.machine = Running()
        self.begin()

    def begin(self):
        """The next process of the agent."""
        self.lease = NodeLease(self.directory)
        self.helper = watchdog(self.directory)
        machines = SimpleNamespace(values=lambda: [self.machine])
        self.fencing = SelfFencing(None, "a", self.lease, machines, self.helper)

    @asynccontextmanager
    async def agent(self):
        """Run it; at the end it is killed: its watchdog stays."""
        async with Background() as tasks:
            await self.fencing.start(tasks)
            await asyncio.sleep(0.1)
            yield
        self.helper.release()
        self.begin()

    def renew(self):
        self.lease.renewed(self.lease.now())

    def age(self):
        """Let a minute pass."""
        moment = now() - 60
        os.utime(self.directory / RENEWED, (moment, moment))

    @property
    def is_watched(self):
        return runs(self.directory / WATCHDOG)

    @property
    def has_file(self):
        return (self.directory / STOPPED).exists()


@pytest.fixture
async def node(tmp_path):
    made = Node(tmp_path)
    made.renew()
    yield made
    await watchdog(tmp_path).end()


async def written():
    return True


@pytest.fixture
async def stopped(node):
    """A node whose agent was stopped a minute ago."""
    async with node.agent():
        await node.fencing.end(written)
    node.age()
    node.begin()
    return node


async def test_a_late_start_after_a_stop_ends_nothing(stopped):
    async with stopped.agent():
        assert not stopped.lease.is_valid
        assert not stopped.lease.ends_machines
        assert not stopped.is_watched
        assert not await stopped.fencing.resume()  # nothing is renewed yet
        assert stopped.fencing.condition().reason == "AgentStopped"
        stopped.renew()
        assert not stopped.is_watched
        assert await stopped.fencing.resume()
        assert stopped.is_watched
        assert not stopped.has_file
        assert stopped.fencing.condition().active
        await asyncio.sleep(0.1)
        assert not stopped.machine.fenced
        assert not await stopped.fencing.resume()


async def test_it_fences_itself_again_after_its_return(stopped):
    async with stopped.agent():
        stopped.renew()
        await stopped.fencing.resume()
    stopped.age()
    stopped.begin()
    assert stopped.lease.ends_machines
    async with stopped.agent():
        assert stopped.machine.fenced


async def test_a_stop_in_an_earlier_boot_counts_for_nothing(stopped):
    (stopped.directory / STOPPED).write_text("earlier")
    stopped.begin()
    assert stopped.lease.ends_machines
    async with stopped.agent():
        assert stopped.is_watched
        assert stopped.machine.fenced


async def test_a_start_without_a_stop_ends_machines(node):
    async with node.agent():
        pass
    node.age()
    node.begin()
    assert node.lease.ends_machines


async def test_a_stop_that_the_node_does_not_say_leaves_no_file(node):
    async def not_written():
        return False

    async with node.agent():
        await node.fencing.end(not_written)
        assert node.is_watched
        assert not node.has_file


async def test_an_agent_killed_while_it_stops_leaves_the_file_before_the_watchdog_ends(
    node, monkeypatch
):
    async with node.agent():

        async def killed():
            assert node.has_file
            raise NetworkError("killed here")

        monkeypatch.setattr(node.helper, "end", killed)
        await node.fencing.end(written)
    assert node.is_watched
    async with node.agent():  # the next one ends it, before it acts on an old renewal
        assert not node.is_watched
        assert not node.fencing.condition().active


async def test_an_agent_killed_while_it_resumes_leaves_the_file(stopped, monkeypatch):
    async with stopped.agent():

        def killed():
            assert stopped.is_watched
            raise OSError("killed here")

        monkeypatch.setattr(stopped.lease, "resume", killed)
        stopped.renew()
        assert not await stopped.fencing.resume()
        assert not stopped.fencing.condition().active
    assert stopped.is_watched
    assert stopped.has_file
    async with stopped.agent():
        assert not stopped.is_watched
        stopped.renew()
        assert await stopped.fencing.resume()
        assert stopped.is_watched


async def test_without_its_watchdog_a_node_does_not_resume(stopped, monkeypatch):
    async with stopped.agent():

        async def fails():
            raise NetworkError("no memory")

        monkeypatch.setattr(stopped.helper, "ensure", fails)
        stopped.renew()
        assert not await stopped.fencing.resume()
        assert stopped.has_file
        assert not stopped.fencing.condition().active


async def test_a_lapse_while_it_was_stopped_ends_nothing_afterwards(stopped):
    """Also where the first renewal comes before the lapse is noticed."""
    async with stopped.agent():
        stopped.lease.lapses += 1
        stopped.renew()
        await stopped.fencing.resume()
        await asyncio.sleep(0.1)
        assert not stopped.machine.fenced


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
async def test_replaced_machines_are_stopped_and_awaited(tmp_path, pod, vmi, ends):
    machines = Machines()
    fencing = SelfFencing(Api(pod, vmi), "a", NodeLease(tmp_path), machines, None)
    await fencing.end_replaced()
    assert machines.stopped == ([0] if ends else [])
    assert [key.name for key in machines.awaited] == (["p"] if ends else [])
