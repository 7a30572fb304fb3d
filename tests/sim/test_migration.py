"""Live migration by the nodes.  The test plays the migration controller."""

import asyncio

import msgspec
import pytest
from lightkube.models.core_v1 import Pod
from tests.sim.cluster import cluster, replica_set
from tests.sim.hosts import Joined
from tests.sim.migrations import running, slow

from corral.api.kinds.kubevirt.migration import TARGET_NODE
from corral.api.kinds.kubevirt.replicaset import VirtualMachineInstanceReplicaSet as ReplicaSet
from corral.api.kinds.vmi.derived import MIGRATION_UID, target_pod_name
from corral.api.kinds.vmi.vmi import VirtualMachineInstance as Vmi
from corral.api.object import Key
from corral.node.hypervisor import Change

pytestmark = pytest.mark.looptime
UID = "11111111-2222-3333-4444-555555555555"


@pytest.fixture(params=["one host", "two hosts"])
def two(request):
    """Two nodes of one host, or of two."""
    joined = {"node0": Joined(), "node1": Joined()} if request.param == "two hosts" else {}
    return lambda: cluster(nodes=2, joined=joined)


async def started(c):
    """Return the one ready VMI of a set."""
    await c.client.create(ReplicaSet, replica_set(replicas=1))
    await c.until_ready("test", 1)
    return (await c.machines("default"))[0]


async def begin(c, vmi, uid=UID):
    """Create the target pod on the other node; once it runs, write the migration's state."""
    [source] = await source_pods(c, vmi)
    node = next(name for name in c.agents if name != vmi.status.node_name)
    labels = {**source.metadata.labels, MIGRATION_UID: uid}
    pod = {
        "metadata": {
            "name": target_pod_name(vmi, uid),
            "namespace": "default",
            "labels": labels,
            "ownerReferences": msgspec.to_builtins(source.metadata.ownerReferences),
        },
        "spec": {**msgspec.to_builtins(source.spec), "nodeName": node},
    }
    target = await c.component.create(Pod, pod)
    label = {"metadata": {"labels": {TARGET_NODE: node}}}
    await c.component.patch(Vmi, vmi.key, label)

    async def runs():
        return (await pod_of(c, target.metadata.name)).status.phase == "Running"

    await c.until(runs)
    assert not (await pod_of(c, target.metadata.name)).status.podIPs
    state = {
        "migrationUid": uid,
        "sourceNode": vmi.status.node_name,
        "sourcePod": source.metadata.name,
        "targetNode": node,
        "targetPod": target.metadata.name,
        "startTimestamp": None,
        "endTimestamp": None,
        "completed": None,
        "failed": None,
        "targetNodeAddress": None,
    }
    await patch(c, vmi, {"migrationState": state})
    return target


async def source_pods(c, vmi):
    return [
        each
        for each in await c.pods("default")
        if each.spec.nodeName == vmi.status.node_name and each.status.phase == "Running"
    ]


async def pod_of(c, name):
    return await c.client.get(Pod, name, "default")


async def patch(c, vmi, status):
    return await c.component.patch(Vmi, vmi.key, {"status": status})


async def ended(c, vmi):
    """Wait for the end of the migration; return the VMI."""

    async def is_over():
        return (
            await c.client.get(Vmi, vmi.metadata.name, "default")
        ).status.migration_state.completed

    await c.until(is_over)
    return await c.client.get(Vmi, vmi.metadata.name, "default")


async def test_a_guest_goes_on_on_the_other_node(two):
    async with two() as c:
        before = await started(c)
        [memory] = running(c)
        target = await begin(c, before)
        after = await ended(c, before)
        state = after.status.migration_state
        assert not state.failed
        assert state.start_timestamp
        assert state.end_timestamp
        assert state.target_node_domain_ready_timestamp
        assert after.status.phase == "Running"
        assert after.status.node_name == state.target_node != before.status.node_name
        assert after.metadata.labels["kubevirt.io/nodeName"] == state.target_node
        assert list(after.status.active_pods) == [target.metadata.uid]

        async def is_done():
            source = await pod_of(c, state.source_pod)
            target_now = await pod_of(c, target.metadata.name)
            conditions = {one.type: one.status for one in target_now.status.conditions}
            return source.status.phase == "Succeeded" and conditions["Ready"] == "True"

        await c.until(is_done)
        assert running(c) == [memory]
        events = {each.reason: each.message for each in await c.events(before.metadata.name)}
        assert events["Migrating"] == "VirtualMachineInstance is migrating."
        assert "Stopped" not in events


async def test_a_guest_comes_back_to_its_first_node(two):
    async with two() as c:
        first = await started(c)
        memory = running(c)
        for number in range(4):
            vmi = await c.client.get(Vmi, first.metadata.name, "default")
            await begin(c, vmi, uid=f"{number}{UID[1:]}")
            moved = await ended(c, vmi)
            assert not moved.status.migration_state.failed
            assert moved.status.node_name != vmi.status.node_name
            assert running(c) == memory


async def test_a_cancelled_migration_leaves_the_guest_where_it_is(two):
    async with two() as c:
        vmi = await started(c)
        memory = running(c)
        slow(c, 10)
        target = await begin(c, vmi)
        await asyncio.sleep(3)
        await patch(c, vmi, {"migrationState": {"abortRequested": True}})
        after = await ended(c, vmi)
        state = after.status.migration_state
        assert (state.failed, state.abort_status) == (True, "Succeeded")
        assert after.status.node_name == vmi.status.node_name
        assert running(c) == memory

        async def is_failed():
            return (await pod_of(c, target.metadata.name)).status.phase == "Failed"

        await c.until(is_failed)
        assert running(c) == memory
        assert (await c.client.get(Vmi, vmi.metadata.name, "default")).status.phase == "Running"


async def test_a_guest_that_ends_while_it_migrates_has_ended(two):
    async with two() as c:
        vmi = await started(c)
        slow(c, 10)
        await begin(c, vmi)
        await asyncio.sleep(3)
        c.end(vmi, Change.GONE)

        async def has_failed():
            return (await c.machines("default"))[0].metadata.uid != vmi.metadata.uid

        await c.until(has_failed)
        await c.until_ready("test", 1)
        assert len(running(c)) == 1


STEPS = [
    "sending",
    "transferred",
    "sent",
    "handed over",
    "defined",
    "prepared",
    "spawned",
    "receiving",
    "received",
    "arriving",
]


@pytest.mark.parametrize("victim", ["source", "target", "both"])
@pytest.mark.parametrize("step", STEPS)
async def test_one_guest_remains_if_agents_are_killed_at_a_step(two, step, victim):
    async with two() as c:
        vmi = await started(c)
        memory = running(c)
        source = vmi.status.node_name
        other = next(name for name in c.agents if name != source)
        killed = []

        def kill(name):
            if c.alive(name):
                c.kill_agent(name)
                killed.append(name)

        def on_step(_uid, now):
            assert len(running(c)) <= 1, "two run the guest"
            if now == step and not killed:
                if victim in {"source", "both"}:
                    kill(source)
                if victim in {"target", "both"}:
                    kill(other)

        for agent in c.agents.values():
            agent._step = on_step
        migration = asyncio.create_task(begin(c, vmi))
        await asyncio.sleep(20)
        for name in killed:
            c.start_node(name)
        assert killed
        async with asyncio.timeout(120):
            await migration
        await asyncio.sleep(120)
        assert running(c) == memory
        after = await c.client.get(Vmi, vmi.metadata.name, "default")
        state = after.status.migration_state
        assert after.status.phase == "Running"
        assert c.guest(after).memory == memory[0]
        if state.start_timestamp is None:  # without its source, whose files it needs
            assert (step, victim) == ("defined", "source")
            assert (await pod_of(c, state.target_pod)).status.phase == "Failed"
            return  # what follows is the controller's
        assert state.completed
        assert bool(state.failed) == (after.status.node_name == source)


@pytest.mark.parametrize("step", [each for each in STEPS if each != "defined"])
@pytest.mark.parametrize("seconds", [0, 30])
async def test_one_guest_remains_if_hosts_lose_each_other_at_a_step(step, seconds):
    joined = {"node0": Joined(), "node1": Joined()}
    async with cluster(nodes=2, joined=joined) as c:
        vmi = await started(c)
        memory = running(c)
        loop, cuts = asyncio.get_running_loop(), []

        def on_step(_uid, now):
            assert len(running(c)) <= 1, "two run the guest"
            if now == step and not cuts:
                cuts.append(step)
                c.network.cut()
                loop.call_later(seconds, c.network.heal)

        for agent in c.agents.values():
            agent._step = on_step
        await begin(c, vmi)
        after = await ended(c, vmi)
        assert cuts
        state = after.status.migration_state
        moved = after.status.node_name != vmi.status.node_name
        assert bool(state.failed) is not moved
        await asyncio.sleep(120)
        assert running(c) == memory
        after = await c.client.get(Vmi, vmi.metadata.name, "default")
        assert after.status.phase == "Running"
        assert c.guest(after).memory == memory[0]


async def test_a_target_that_may_have_run_the_guest_does_not_give_it_back():
    """Its node is lost once it runs the guest, and its pod is deleted before it has said so."""
    joined = {"node0": Joined(), "node1": Joined()}
    async with cluster(nodes=2, joined=joined) as c:
        vmi = await started(c)
        other = next(name for name in c.agents if name != vmi.status.node_name)
        lost = []

        def on_step(_uid, now):
            if now == "arriving" and not lost:
                lost.append(other)
                c.kill_agent(other)

        c.agents[other]._step = on_step
        target = await begin(c, vmi)
        await asyncio.sleep(10)
        assert lost
        assert running(c) == []
        await c.component.delete(Pod, Key("default", target.metadata.name), grace_seconds=0)

        async def is_replaced():
            return all(each.metadata.uid != vmi.metadata.uid for each in await c.machines())

        await c.until(is_replaced)
