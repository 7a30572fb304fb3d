"""Nodes that are cut off: never two of one exclusive machine, whatever fails and when."""

import asyncio
import random
from contextlib import asynccontextmanager, suppress

import pytest
from lightkube.models.core_v1 import Node
from tests.sim.cluster import cluster
from tests.sim.hosts import Joined, count, watch
from tests.sim.pools import pool
from tests.sim.seeds import seeds
from tests.sim.test_dead_nodes import running, spread, tolerating, tolerations

from corral.api.errors import NotFound
from corral.api.kinds.core import node_lease
from corral.api.kinds.kubevirt.pool import VirtualMachinePool as Pool
from corral.api.kinds.vmi.vmi import VirtualMachineInstance as Machine
from corral.cluster import node_lifecycle, pod_gc, scheduler, taint_eviction
from corral.daemon.stand_ins import STAND_INS
from corral.node.hollow.hypervisor import Hollow

pytestmark = pytest.mark.looptime

NODES = ("node0", "node1")
CONCERNED = (
    scheduler.controller,
    pod_gc.controller,
    node_lifecycle.controller,
    node_lifecycle.taint_controller,
    taint_eviction.controller,
)
"""The stand-ins that have a part in it: with all of them a seed takes three times as long."""


class Late(Hollow):
    """Starts no guest before the test says so."""

    def __init__(self):
        super().__init__()
        self.requested, self.ready = asyncio.Event(), asyncio.Event()

    async def start(self, definition):
        self.requested.set()
        await self.ready.wait()
        return await super().start(definition)


class Slow(Hollow):
    """Takes up to a minute for some starts, by a seed: the node may be cut off meanwhile."""

    def __init__(self, dice):
        super().__init__()
        self._dice = dice

    async def start(self, definition):
        await asyncio.sleep(self._dice.choice((0, 0, self._dice.uniform(0, 60))))
        return await super().start(definition)


@pytest.fixture
def census(monkeypatch):
    return count(monkeypatch)


@asynccontextmanager
async def hosts(census, only=STAND_INS, **joined):
    """A cluster with nodes of other hosts, each with its watchdog."""
    nodes = {name: joined.get(name) or Joined() for name in NODES}
    async with cluster(nodes=len(nodes), joined=nodes, only=only) as c:
        for name, host in nodes.items():
            directory = c.node_directory(name)
            c._tasks.start(watch(directory, host.boottime, census), name=f"watchdog of {name}")
        yield c


def members(seconds=0, replicas=4, **spec):
    return pool(replicas=replicas, spec={"tolerations": tolerations(seconds)}, **spec)


async def are_replaced(c, count=4):
    return len(await running(c, "node1")) == count


def lives(census, vmi):
    """Return whether the machine of a VMI runs."""
    name = vmi.metadata.namespace, vmi.metadata.name
    return any(path.name == vmi.metadata.uid for path in census.running.get(name, ()))


@pytest.mark.parametrize("silent", [False, True])
async def test_members_of_pools_end_before_they_are_replaced(census, silent):
    async with hosts(census) as c:
        await spread(c, members(), Pool)
        lost = await running(c, "node0")
        c.joined["node0"].link.cut(silent=silent)
        await asyncio.sleep(29)
        assert all(lives(census, each) for each in lost)
        await asyncio.sleep(12)
        assert not any(lives(census, each) for each in lost)
        assert len(await running(c, "node1")) < 4
        await c.until(lambda: are_replaced(c), 20)
        c.joined["node0"].link.heal()
        await asyncio.sleep(30)
        assert len(await running(c, "node1")) == 4


async def test_the_watchdog_ends_them_where_the_agent_is_dead(census):
    async with hosts(census) as c:
        await spread(c, members(), Pool)
        lost = await running(c, "node0")
        c.kill_agent("node0")
        await asyncio.sleep(29)
        assert all(lives(census, each) for each in lost)
        await asyncio.sleep(13)
        assert not any(lives(census, each) for each in lost)
        await c.until(lambda: are_replaced(c), 20)
        c.start_node("node0")
        await asyncio.sleep(30)
        assert len(await running(c, "node1")) == 4


async def test_an_agent_that_starts_while_cut_off_prolongs_nothing(census):
    async with hosts(census) as c:
        await spread(c, members(), Pool)
        lost = await running(c, "node0")
        c.kill_agent("node0")
        c.joined["node0"].link.cut()
        await asyncio.sleep(20)
        c.start_node("node0")
        await asyncio.sleep(10)
        assert all(lives(census, each) for each in lost)
        await asyncio.sleep(12)
        assert not any(lives(census, each) for each in lost)


async def test_members_of_replica_sets_run_on(census):
    async with hosts(census) as c:
        await spread(c, tolerating(300, replicas=4))
        before = {each.metadata.uid for each in await c.machines()}
        c.joined["node0"].link.cut()
        await asyncio.sleep(120)
        c.joined["node0"].link.heal()
        await asyncio.sleep(30)
        assert {each.metadata.uid for each in await c.machines()} == before
        assert all(each.status.phase == "Running" for each in await c.machines())


async def test_what_was_replaced_ends_before_the_node_is_ready(census):
    async with hosts(census) as c:
        await spread(c, tolerating(0, replicas=4))
        lost = await running(c, "node0")
        c.joined["node0"].link.cut()
        await asyncio.sleep(100)
        assert all(c.guests(each) for each in lost)
        c.joined["node0"].link.heal()

        async def is_ready():
            node = await c.client.get(Node, "node0")
            ready = {each.type: each.status for each in node.status.conditions}["Ready"]
            assert ready != "True" or not any(c.guests(each) for each in lost)
            return ready == "True"

        await c.until(is_ready, 60, every=0.001)


async def test_a_member_that_had_not_started_is_not_started_by_a_node_that_is_cut_off(census):
    async with hosts(census) as c:
        c._hypervisors["node0"] = hypervisor = Late()
        c.kill_agent("node0")
        c.start_node("node0")
        await c.client.create(Pool, members(replicas=2))
        await hypervisor.requested.wait()
        c.joined["node0"].link.cut()
        await asyncio.sleep(41)
        hypervisor.ready.set()
        await asyncio.sleep(60)
        assert not hypervisor.guests or all(g.halted for g in hypervisor.guests.values())
        assert len(await running(c, "node1")) == 2


async def test_a_node_whose_agent_was_stopped_is_not_replaced(census):
    async with hosts(census) as c:
        await spread(c, members(), Pool)
        lost = await running(c, "node0")
        await c.agents["node0"].stop()
        c.kill_agent("node0")
        await asyncio.sleep(200)
        assert len(await running(c, "node1")) < 4
        status = (await c.client.get(Node, "node0")).status
        said = {each.type: each for each in status.conditions}[node_lease.SELF_FENCING]
        assert (said.status, said.reason) == ("False", "AgentStopped")
        assert lost


async def test_a_start_long_after_a_stop_ends_nothing(census):
    async with hosts(census) as c:
        await spread(c, members(300), Pool)
        before = await running(c, "node0")
        assert before
        await c.agents["node0"].stop()
        c.kill_agent("node0")
        await asyncio.sleep(200)
        c.start_node("node0")
        for _ in range(60):
            await asyncio.sleep(1)
            assert all(lives(census, each) for each in before)
        status = (await c.client.get(Node, "node0")).status
        said = {each.type: each.status for each in status.conditions}
        assert (said["Ready"], said[node_lease.SELF_FENCING]) == ("True", "True")
        c.joined["node0"].link.cut()
        await asyncio.sleep(41)
        assert not any(lives(census, each) for each in before)


class Faults:
    """Faults of hosts, their times and durations, chosen by a seed."""

    def __init__(self, c, dice):
        self._c = c
        self._dice = dice

    async def one(self):
        """Let something fail for a while, perhaps while a member starts, then heal it."""
        name = self._dice.choice(NODES)
        await asyncio.sleep(self._dice.uniform(0, 40))
        if self._dice.random() < 0.5:
            await self._restart_a_member()
            await asyncio.sleep(self._dice.uniform(0, 2))
        kinds = (self._partition, self._partition, self._dead_agent, self._dead_and_cut)
        await self._dice.choice((*kinds, self._slow_requests, self._dead_control_plane))(name)

    def _seconds(self):
        return self._dice.choice((self._dice.uniform(1, 60), self._dice.uniform(38, 55)))

    async def _restart_a_member(self):
        """Delete a VMI: its VirtualMachine starts another one of that name."""
        if found := await self._c.machines():
            with suppress(NotFound):
                await self._c.client.delete(Machine, self._dice.choice(found).key)

    async def _partition(self, name):
        link = self._c.joined[name].link
        link.cut(silent=self._dice.random() < 0.5)
        await asyncio.sleep(self._seconds())
        self._c.joined[name].link.heal()

    async def _dead_agent(self, name):
        if self._c.alive(name):
            self._c.kill_agent(name)
            await asyncio.sleep(self._seconds())
            self._c.start_node(name)

    async def _dead_and_cut(self, name):
        """The agent dies, and a new one starts while the host is cut off."""
        link = self._c.joined[name].link
        if self._c.alive(name):
            link.cut(silent=self._dice.random() < 0.5)
            self._c.kill_agent(name)
            await asyncio.sleep(self._seconds() / 2)
            self._c.start_node(name)
            await asyncio.sleep(self._seconds() / 2)
        self._c.joined[name].link.heal()

    async def _slow_requests(self, name):
        """Requests take their time, and arrive although the agent has given up on them."""
        host = self._c.joined[name]
        host.link.delay = self._dice.uniform(1, 15)
        await asyncio.sleep(self._seconds())
        host.link.delay = 0.0

    async def _dead_control_plane(self, _name):
        """The API server and its controllers: nothing is remembered but what is stored."""
        for host in self._c.joined.values():
            host.link.cut()
        await self._c.crash_loops()
        await asyncio.sleep(self._seconds())
        self._c.start_loops()
        for host in self._c.joined.values():
            host.link.heal()


@pytest.mark.parametrize("seed", seeds(50))
async def test_a_member_never_runs_twice(census, seed):
    dice = random.Random(seed)
    joined = {
        name: Joined(
            booted=dice.uniform(100, 1e6),
            rate=dice.uniform(0.9995, 1.0005),
            skew=dice.uniform(-600, 600),
        )
        for name in NODES
    }
    async with hosts(census, CONCERNED, **joined) as c:
        for name in NODES:
            c.kill_agent(name)
            c._hypervisors[name] = Slow(dice)
            c.start_node(name)
        await c.client.create(Pool, members(dice.choice((0, 0, 5, 20)), replicas=2))
        faults = Faults(c, dice)
        for _ in range(dice.choice((1, 2, 3))):
            await faults.one()

        async def all_run():
            found = await c.machines()
            return len(found) == 2 and all(
                each.status.phase == "Running" and lives(census, each) for each in found
            )

        await c.until(all_run, 300, every=1)
        assert census.most == 2
