"""Controllers of Kubernetes that corral stands in for."""

import pytest
from lightkube.models.core_v1 import ConfigMap, Namespace, Node, Pod
from tests.sim.cluster import cluster, replica_set

from corral.api.errors import NotFound
from corral.api.kinds.kubevirt.replicaset import VirtualMachineInstanceReplicaSet as ReplicaSet
from corral.api.kinds.vmi.vmi import VirtualMachineInstance as Machine
from corral.api.object import Key
from corral.node.status.node_status import Capacity

pytestmark = pytest.mark.looptime

SMALL = Capacity(cpu=2, memory_bytes=300 << 20, storage_bytes=1 << 40)


async def test_pods_that_do_not_fit_report_why_and_wait_for_room():
    async with cluster(capacity=SMALL) as c:
        await c.client.create(ReplicaSet, replica_set("test", 3))

        async def says_why():
            reported = [
                condition.message
                for machine in await c.machines()
                for condition in machine.status.conditions
                if condition.type == "PodScheduled" and condition.reason == "Unschedulable"
            ]
            return reported == ["0/1 nodes are available: 1 Insufficient memory."]

        await c.until(says_why)
        pods = await c.pods()
        waiting = next(pod for pod in pods if not pod.spec.nodeName)
        reported = await c.events(waiting.metadata.name)
        assert [event.reason for event in reported] == ["FailedScheduling"]
        c.start_node("node9")
        await c.until_ready("test", 3)
        machines = await c.machines()
        assert {machine.status.node_name for machine in machines} == {"node0", "node9"}
        assert not any(
            condition.type == "PodScheduled"
            for machine in machines
            for condition in machine.status.conditions
        )


async def test_vmis_are_spread_over_the_nodes():
    async with cluster(nodes=3) as c:
        await c.client.create(ReplicaSet, replica_set("test", 9))
        await c.until_ready("test", 9)
        nodes = [machine.status.node_name for machine in await c.machines()]
        assert sorted(nodes) == ["node0"] * 3 + ["node1"] * 3 + ["node2"] * 3


async def test_a_deleted_namespace_is_emptied_first():
    async with cluster() as c:
        await c.client.create(Namespace, {"metadata": {"name": "lab"}})
        document = replica_set("test", 3)
        document["metadata"]["namespace"] = "lab"
        await c.client.create(ReplicaSet, document)
        await c.client.create(ConfigMap, {"metadata": {"name": "a", "namespace": "lab"}})

        async def has_machines():
            return [m.status.phase for m in await c.machines("lab")] == ["Running"] * 3

        await c.until(has_machines)
        await c.client.delete(Namespace, Key("", "lab"))

        async def is_gone():
            try:
                await c.client.get(Namespace, "lab")
            except NotFound:
                return True
            return False

        await c.until(is_gone)
        assert await c.machines("lab") == []
        assert await c.pods("lab") == []
        assert (await c.client.list(ConfigMap, "lab")).items == []


async def test_a_dependent_of_an_owner_that_never_existed_is_collected():
    async with cluster() as c:
        owner = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "name": "owner",
            "uid": "11111111-2222-3333-4444-555555555555",
        }
        metadata = {"name": "child", "namespace": "default", "ownerReferences": [owner]}
        await c.client.create(ConfigMap, {"metadata": metadata})
        await c.until(lambda: _is_empty(c, ConfigMap))


async def test_a_dependent_with_two_owners_outlives_one():
    async with cluster() as c:
        references = []
        for name in ("one", "two"):
            made = await c.client.create(
                ConfigMap, {"metadata": {"name": name, "namespace": "default"}}
            )
            references.append(
                {"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": made.metadata.uid}
            )
        metadata = {"name": "child", "namespace": "default", "ownerReferences": references}
        await c.client.create(ConfigMap, {"metadata": metadata})
        await c.client.delete(ConfigMap, Key("default", "one"))

        async def has_one_owner():
            child = await c.client.get(ConfigMap, "child", "default")
            return [owner.name for owner in child.metadata.ownerReferences] == ["two"]

        await c.until(has_one_owner)
        await c.client.delete(ConfigMap, Key("default", "two"))
        await c.until(lambda: _is_empty(c, ConfigMap))


async def _is_empty(c, view):
    return not (await c.client.list(view)).items


async def test_vmis_of_an_unreachable_node_are_replaced_elsewhere():
    async with cluster() as c:
        await c.client.create(ReplicaSet, replica_set("test", 2))
        await c.until_ready("test", 2)
        c.start_node("node1")
        lost = (await c.machines())[0].status.node_name
        c.kill_agent(lost)

        async def is_unknown():
            node = await c.client.get(Node, lost)
            return any(
                each.type == "Ready" and each.status == "Unknown" for each in node.status.conditions
            )

        await c.until(is_unknown, 60)

        async def are_elsewhere():
            running = [m for m in await c.machines() if m.status.phase == "Running"]
            return {m.status.node_name for m in running} == {"node1"} and len(running) == 2

        await c.until(are_elsewhere, 400)
        events = [event for pod in await c.pods() for event in await c.events(pod.metadata.name)]
        assert events
        await c.client.delete(Node, Key("", lost))
        await c.until_ready("test", 2)


async def test_pods_of_a_deleted_node_are_deleted():
    async with cluster() as c:
        await c.client.create(ReplicaSet, replica_set("test", 2))
        await c.until_ready("test", 2)
        c.start_node("node1")
        c.kill_agent("node0")
        await c.client.delete(Node, Key("", "node0"))
        await c.until_ready("test", 2)

        async def all_moved():
            pods = await c.pods()
            return len(pods) == 2 and {pod.spec.nodeName for pod in pods} == {"node1"}

        await c.until(all_moved, 100)
        await c.until_ready("test", 2)


async def test_a_pod_deleted_before_it_is_scheduled_is_replaced():
    async with cluster(nodes=0) as c:
        await c.client.create(ReplicaSet, replica_set("test", 1))

        async def has_a_pod():
            return len(await c.pods()) == 1

        await c.until(has_a_pod)
        first = (await c.pods())[0].metadata.uid
        await c.client.delete(Pod, Key("default", (await c.pods())[0].metadata.name))

        async def has_another():
            return [pod.metadata.uid for pod in await c.pods()] not in ([], [first])

        await c.until(has_another)
        assert len([m for m in await c.machines() if not m.is_final]) == 1


async def test_a_vmi_deleted_before_it_runs_is_gone_at_once():
    async with cluster(nodes=0) as c:
        await c.client.create(ReplicaSet, replica_set("test", 2))

        async def has_pods():
            return len(await c.pods()) == 2

        await c.until(has_pods)
        await c.client.delete(ReplicaSet, Key("default", "test"))
        await c.until(lambda: _is_empty(c, Machine), 10)
        await c.until(lambda: _is_empty(c, Pod), 10)


@pytest.mark.parametrize("policy", ["Background", "Foreground"])
async def test_a_large_set_is_deleted_completely(policy):
    async with cluster() as c:
        await c.client.create(ReplicaSet, replica_set("test", 150))
        await c.until_ready("test", 150)
        await c.client.delete(ReplicaSet, Key("default", "test"), propagation=policy)
        await c.until(lambda: _is_empty(c, ReplicaSet))
        await c.until(lambda: _is_empty(c, Machine))
        await c.until(lambda: _is_empty(c, Pod))
