"""Budgets of disruptions, evictions and drains, as their users see them."""

import asyncio

import pytest
from lightkube.models.core_v1 import ConfigMap, Node, Pod, ResourceQuota
from lightkube.models.policy_v1 import PodDisruptionBudget as Budget
from tests.sim.cluster import Faults, cluster, replica_set
from tests.sim.drains import NAME, allows, budget, cordon, drain, evict, pods_on, witness
from tests.sim.pools import pool

from corral.api.errors import TooManyRequests
from corral.api.kinds.kubevirt.pool import VirtualMachinePool as Pool
from corral.api.kinds.kubevirt.replicaset import VirtualMachineInstanceReplicaSet as ReplicaSet
from corral.api.kinds.kubevirt.virtualmachine import VirtualMachine
from corral.api.kinds.vmi.vmi import VirtualMachineInstance as Machine
from corral.api.object import Key
from corral.node.hypervisor import Change
from corral.reconcile.objects import key_of, object_reference, uid_of

pytestmark = pytest.mark.looptime

BOUNDS = [{"minAvailable": "75%"}, {"maxUnavailable": 1}, {"minAvailable": 3}]
LABELS = {"app": NAME}


def set_of_four() -> dict:
    return replica_set(NAME, 4)


def pool_of_four() -> dict:
    document = pool(NAME, 4)
    document["spec"]["virtualMachineTemplate"]["spec"]["template"]["metadata"]["labels"] = LABELS
    return document


def virtual_machine(number: int) -> dict:
    """One of some VirtualMachines of which each is by itself."""
    template = pool_of_four()["spec"]["virtualMachineTemplate"]["spec"]
    return {"metadata": {"name": f"vm{number}", "namespace": "default"}, "spec": template}


async def ready(c, count: int, seconds: float = 120.0) -> None:
    """Wait until so many machines of the test run."""

    async def are_ready() -> bool:
        machines = await c.machines("default")
        return [machine.status.phase for machine in machines] == ["Running"] * count

    await c.until(are_ready, seconds)


async def start_four(c, of) -> None:
    if of is VirtualMachine:
        for number in range(4):
            await c.client.create(VirtualMachine, virtual_machine(number))
    else:
        await c.client.create(of, set_of_four() if of is ReplicaSet else pool_of_four())
    await ready(c, 4)


@pytest.mark.parametrize("of", [ReplicaSet, Pool, VirtualMachine])
@pytest.mark.parametrize("bound", BOUNDS)
async def test_a_budget_allows_the_eviction_of_one_vmi_of_four(of, bound):
    async with cluster() as c:
        await start_four(c, of)
        await c.client.create(Budget, budget(**bound))
        status = (await allows(c, 1)).status
        assert (status.currentHealthy, status.desiredHealthy, status.expectedPods) == (4, 3, 4)
        first, second, *_ = await c.pods("default")
        await evict(c, key_of(first))
        with pytest.raises(TooManyRequests, match="would violate the pod's disruption budget"):
            await evict(c, key_of(second))
        await c.until(lambda: _gone(c, first))
        await ready(c, 4)
        await allows(c, 1)
        await evict(c, key_of(second))


async def _gone(c, pod) -> bool:
    return uid_of(pod) not in {uid_of(each) for each in await c.pods("default")}


@pytest.mark.parametrize("of", [ReplicaSet, Pool, VirtualMachine])
@pytest.mark.parametrize("bound", BOUNDS)
async def test_drains_of_nodes_in_turn_keep_to_the_budget(of, bound):
    async with cluster(nodes=2) as c:
        await start_four(c, of)
        await c.client.create(Budget, budget(**bound))
        await allows(c, 1)
        async with witness(c) as seen:
            for node in ("node0", "node1"):
                assert await drain(c, node)
                assert await pods_on(c, node) == []
                await ready(c, 4)
                await allows(c, 1)
                await cordon(c, node, closed=False)
        assert seen.fewest == 3


async def emptied(c, *nodes) -> None:
    """Drain nodes until all are empty at once: a lagging scheduler may not know that one is closed.

    So it may bind to a node that is empty already a pod that the drain of another has displaced.
    """
    while [pod for node in nodes for pod in await pods_on(c, node)]:
        await asyncio.gather(*(drain(c, node) for node in nodes))
        await asyncio.sleep(5)


@pytest.mark.parametrize("seed", range(8))
async def test_drains_keep_to_the_budget_in_spite_of_faults(seed):
    faults = Faults(seed, fail=0.1, lose_answer=0.1, delay=0.5, cut=0.05, double=0.1, until=400)
    async with cluster(nodes=3, faults=faults) as c:
        await start_four(c, ReplicaSet)
        await c.client.create(Budget, budget(minAvailable="75%"))
        await allows(c, 1, 300)
        async with witness(c) as seen:
            draining = asyncio.create_task(emptied(c, "node0", "node1"))
            await asyncio.sleep(faults.dice.uniform(0, 8))
            await c.crash_loops()
            await asyncio.sleep(faults.dice.uniform(0, 20))
            c.start_loops()
            async with asyncio.timeout(900):
                await draining
            await ready(c, 4, 600)
        assert seen.fewest >= 3
        assert len(await pods_on(c, "node2")) == 4


async def test_concurrent_evictions_keep_to_the_budget():
    async with cluster(nodes=2) as c:
        await c.client.create(ReplicaSet, replica_set(NAME, 8))
        await c.until_ready(NAME, 8)
        await c.client.create(Budget, budget(maxUnavailable="25%"))
        await allows(c, 2)
        pods = await c.pods("default")
        answers = await asyncio.gather(
            *(evict(c, key_of(pod)) for pod in pods), return_exceptions=True
        )
        assert sum(answer is None for answer in answers) == 2
        assert sum(isinstance(answer, TooManyRequests) for answer in answers) == 6


async def reckons(c, expected: int) -> None:
    """Wait until a budget expects so many pods."""

    async def does() -> bool:
        status = (await c.client.get(Budget, NAME, "default")).status
        return status is not None and status.expectedPods == expected

    await c.until(does, 120)


async def test_with_the_manual_run_strategy_only_running_vms_are_expected():
    async with cluster() as c:
        document = pool_of_four()
        document["spec"]["virtualMachineTemplate"]["spec"]["runStrategy"] = "Manual"
        await c.client.create(Pool, document)
        await c.client.create(Budget, budget(maxUnavailable=1))
        await asyncio.sleep(30)
        await reckons(c, 0)
        vms = (await c.client.list(VirtualMachine, "default")).items
        assert len(vms) == 4
        for vm in vms[:2]:
            path = "/apis/subresources.kubevirt.io/v1/namespaces/default/virtualmachines"
            await c.client.request("PUT", f"{path}/{vm.metadata.name}/start", document={})
        await ready(c, 2)
        status = (await allows(c, 1)).status
        assert (status.currentHealthy, status.desiredHealthy, status.expectedPods) == (2, 1, 2)
        change = {"virtualMachineTemplate": {"spec": {"runStrategy": "Always"}}}
        await c.client.patch(Pool, Key("default", NAME), {"spec": change})
        await reckons(c, 4)


async def test_a_restarting_vm_counts_as_expected_and_a_stopped_one_does_not():
    async with cluster() as c:
        for number in range(4):
            document = virtual_machine(number)
            document["spec"]["runStrategy"] = "RerunOnFailure"
            await c.client.create(VirtualMachine, document)
        await ready(c, 4)
        await c.client.create(Budget, budget(maxUnavailable="25%"))
        await allows(c, 1)
        no_more = {"hard": {"count/virtualmachineinstances.kubevirt.io": "3"}}
        quota = {"metadata": {"name": "q", "namespace": "default"}, "spec": no_more}
        await c.client.create(ResourceQuota, quota)
        (first, *_) = await c.machines("default")
        c.end(first, Change.GONE)
        await ready(c, 3)
        await asyncio.sleep(30)
        status = (await c.client.get(Budget, NAME, "default")).status
        assert (status.currentHealthy, status.expectedPods) == (3, 4)
        await c.client.delete(ResourceQuota, Key("default", "q"))
        await ready(c, 4)
        (first, *_) = await c.machines("default")
        c.end(first, Change.POWERED_OFF)
        await reckons(c, 3)


async def test_pods_wait_for_the_end_of_a_cordon():
    async with cluster() as c:
        await c.client.create(ReplicaSet, replica_set(NAME, 2))
        await c.until_ready(NAME, 2)
        before = {uid_of(pod) for pod in await c.pods("default")}
        assert await drain(c, "node0") == 0

        async def wait() -> bool:
            pods = await c.pods("default")
            reported = [each for pod in pods for each in pod.status.conditions or ()]
            reasons = {each.message for each in reported if each.type == "PodScheduled"}
            return len(pods) == 2 and reasons == {
                "0/1 nodes are available: 1 node(s) were unschedulable."
            }

        await c.until(wait)
        waiting = [machine for machine in await c.machines() if not machine.is_final]
        assert {machine.status.phase for machine in waiting} == {"Scheduling"}
        node = await c.client.get(Node, "node0")
        assert node.spec.unschedulable
        await cordon(c, "node0", closed=False)
        await c.until_ready(NAME, 2)
        assert before.isdisjoint({uid_of(pod) for pod in await c.pods("default")})
        reported = [event for event in await c.events("node0") if "chedulable" in event.reason]
        assert sorted(event.message for event in reported) == [
            "Node node0 status is now: NodeNotSchedulable",
            "Node node0 status is now: NodeSchedulable",
        ]


async def test_an_eviction_gives_the_guest_its_grace_period():
    async with cluster() as c:
        document = replica_set(NAME, 1)
        document["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = 20
        await c.client.create(ReplicaSet, document)
        await c.until_ready(NAME, 1)
        (machine,), (pod,) = await c.machines(), await c.pods("default")
        await evict(c, key_of(pod))
        going = await c.client.get(Pod, pod.metadata.name, "default")
        assert going.metadata.deletionGracePeriodSeconds == 50
        disrupted = [each for each in going.status.conditions if each.type == "DisruptionTarget"]
        assert [(each.status, each.reason, each.message) for each in disrupted] == [
            ("True", "EvictionByEvictionAPI", "Eviction API: evicting")
        ]
        await c.until(lambda: _gone(c, pod))
        ended = [one for one in await c.machines() if one.metadata.uid == machine.metadata.uid]
        assert [one.status.phase for one in ended] in ([], ["Succeeded"])
        await c.until_ready(NAME, 1)


async def test_a_budget_that_cannot_be_computed_allows_nothing_and_reports_why():
    async with cluster() as c:
        await c.client.create(Budget, budget(maxUnavailable=1))
        metadata = {"name": "somebody", "namespace": "default"}
        somebody = await c.client.create(ConfigMap, {"metadata": metadata})
        owner = {**object_reference(somebody), "controller": True}
        owner = {name: owner[name] for name in ("apiVersion", "kind", "name", "uid", "controller")}
        metadata = {"name": "strange", "namespace": "default", "labels": LABELS}
        document = {
            "metadata": {**metadata, "ownerReferences": [owner]},
            "spec": {"schedulerName": "nobody", "containers": [{"name": "a", "image": "b"}]},
        }
        await c.client.create(Pod, document)

        async def failed() -> bool:
            status = (await c.client.get(Budget, NAME, "default")).status
            conditions = status.conditions or () if status else ()
            return [(each.reason, each.message) for each in conditions] == [
                ("SyncFailed", 'found no controllers for pod "strange"')
            ]

        await c.until(failed)
        events = [event for event in await c.events(NAME) if event.type == "Warning"]
        assert {(event.reason, event.source.component) for event in events} == {
            ("CalculateExpectedPodCountFailed", "controllermanager")
        }


async def test_an_evicted_pod_that_is_not_deleted_counts_again_after_two_minutes():
    async with cluster() as c:
        await start_four(c, ReplicaSet)
        await c.client.create(Budget, budget(maxUnavailable=1))
        await allows(c, 1)
        pod = (await c.pods("default"))[0].metadata.name
        now = c.clock().strftime("%Y-%m-%dT%H:%M:%SZ")
        noted = {"disruptionsAllowed": 0, "disruptedPods": {pod: now}}
        key = Key("default", NAME)
        await c.client.patch(Budget, key, {"status": noted}, subresource="status")
        begun = asyncio.get_running_loop().time()
        await asyncio.sleep(60)
        status = (await c.client.get(Budget, NAME, "default")).status
        assert (status.currentHealthy, status.disruptionsAllowed) == (3, 0)
        status = (await allows(c, 1)).status
        assert asyncio.get_running_loop().time() - begun == pytest.approx(120, abs=2)
        assert not status.disruptedPods
        events = [event for event in await c.events(pod) if event.reason == "NotDeleted"]
        assert [event.message for event in events] == [
            "Pod was expected by PDB default/test to be deleted but it wasn't"
        ]


async def test_a_budget_does_not_prevent_deletion():
    async with cluster() as c:
        await start_four(c, ReplicaSet)
        await c.client.create(Budget, budget(minAvailable="100%"))
        status = (await allows(c, 0)).status
        assert [each.reason for each in status.conditions] == ["InsufficientPods"]
        machine = (await c.machines())[0]
        await c.client.delete(Machine, machine.key)
        await c.until_ready(NAME, 4)


async def test_a_vmi_with_the_external_eviction_strategy_is_marked_and_stays():
    async with cluster() as c:
        document = replica_set(NAME, 1)
        document["spec"]["template"]["spec"]["evictionStrategy"] = "External"
        await c.client.create(ReplicaSet, document)
        await c.until_ready(NAME, 1)
        (pod,), (machine,) = await c.pods("default"), await c.machines()
        with pytest.raises(TooManyRequests, match="Eviction triggered evacuation of VMI"):
            await evict(c, key_of(pod))

        async def condition():
            machine = (await c.machines())[0]
            requested = [
                each for each in machine.status.conditions if each.type == "EvictionRequested"
            ]
            return requested[0] if requested else None

        await c.until(condition)
        found = await condition()
        assert (found.status, found.reason, found.message) == (
            "True",
            "EvictionRequested",
            "VMI is marked for eviction",
        )
        assert (await c.machines())[0].status.evacuation_node_name == "node0"
        group = "/apis/subresources.kubevirt.io/v1/namespaces/default"
        path = f"{group}/virtualmachineinstances/{machine.metadata.name}/evacuate/cancel"
        await c.client.request("PUT", path)

        async def is_clear() -> bool:
            return await condition() is None

        await c.until(is_clear)
        assert [machine.metadata.uid for machine in await c.machines()] == [machine.metadata.uid]


async def test_vmis_of_an_unreachable_node_count_as_unhealthy():
    async with cluster(nodes=2) as c:
        await start_four(c, ReplicaSet)
        await c.client.create(Budget, budget(maxUnavailable=3))
        await allows(c, 3)
        pods = await pods_on(c, "node0")
        c.kill_agent("node0")
        status = (await allows(c, 3 - len(pods))).status
        assert status.currentHealthy == 4 - len(pods)
        events = await c.events(pods[0].metadata.name)
        assert "Node is not ready" in {event.message for event in events}
        c.start_node("node0")
        await allows(c, 3)
        assert {uid_of(pod) for pod in pods} <= {uid_of(pod) for pod in await c.pods("default")}
