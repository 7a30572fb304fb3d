"""Nodes that run short: what they say, who has to go, and that nobody comes back too early."""

import asyncio

import msgspec
import pytest
from lightkube.models.core_v1 import Event, Node
from tests.sim.cluster import cluster, replica_set

from corral.api.kinds.core.node_pressure import DISK_PRESSURE, MEMORY_PRESSURE
from corral.api.kinds.kubevirt.replicaset import VirtualMachineInstanceReplicaSet as ReplicaSet
from corral.api.kinds.vmi.vmi import VirtualMachineInstance as Machine
from corral.api.object import Key
from corral.node.pressure.eviction_manager import (
    CLEANUP_SECONDS,
    PERIOD_SECONDS,
    TRANSITION_SECONDS,
)
from corral.node.pressure.thresholds import Observation
from corral.node.state import machine_record as records

pytestmark = pytest.mark.looptime
MEBIBYTE = 2**20
NODE = Key("", "node0")
SHORT = Observation(50 * MEBIBYTE, 1024 * MEBIBYTE)
ENOUGH = Observation(500 * MEBIBYTE, 1024 * MEBIBYTE)
MEMORY_TAINT = "node.kubernetes.io/memory-pressure"
LOOK = 2 * PERIOD_SECONDS


async def condition(c, name):
    status = (await c.client.get(Node, NODE.name)).status
    return next(each for each in status.conditions if each.type == name)


async def taints(c):
    return [each.key for each in (await c.client.get(Node, NODE.name)).spec.taints or ()]


async def phases(c):
    return sorted(machine.status.phase for machine in await c.machines())


async def events(c, reason):
    return [one for one in (await c.client.list(Event)).items if one.reason == reason]


async def test_one_vmi_is_evicted_and_its_replacement_waits_for_the_end_of_the_pressure():
    async with cluster() as c:
        await c.client.create(ReplicaSet, replica_set())
        await c.until_ready("test", 3)
        before = {machine.metadata.uid for machine in await c.machines()}
        c.left["node0"]["memory.available"] = SHORT
        evicted = []

        async def one_is_gone():
            evicted[:] = await events(c, "Evicted")
            return bool(evicted)

        await c.until(one_is_gone, LOOK)
        c.left["node0"]["memory.available"] = ENOUGH
        assert evicted[0].type == "Warning"
        assert evicted[0].message.startswith(
            "The node was low on resource: memory. Threshold quantity: 100Mi, available: 50Mi. "
        )
        await asyncio.sleep(LOOK)
        reported = await condition(c, MEMORY_PRESSURE)
        assert (reported.status, reported.reason) == ("True", "KubeletHasInsufficientMemory")
        assert (await condition(c, DISK_PRESSURE)).status == "False"
        assert await taints(c) == [MEMORY_TAINT]
        assert await phases(c) == ["Running", "Running", "Scheduling"]
        assert [one.message for one in await events(c, "FailedScheduling")] == [
            f"0/1 nodes are available: 1 node(s) had untolerated taint {{{MEMORY_TAINT}: }}."
        ]
        assert len(await events(c, "EvictionThresholdMet")) == 1
        await asyncio.sleep(TRANSITION_SECONDS - 2 * LOOK)
        assert await phases(c) == ["Running", "Running", "Scheduling"]
        await asyncio.sleep(2 * LOOK)
        assert (await condition(c, MEMORY_PRESSURE)).status == "False"
        assert await taints(c) == []
        await c.until_ready("test", 3)
        assert len(await events(c, "Evicted")) == 1
        assert len(before & {machine.metadata.uid for machine in await c.machines()}) == 2


async def test_an_evicted_vmi_has_failed_and_its_pod_has_the_reason():
    async with cluster() as c:
        alone = replica_set()["spec"]["template"]["spec"]
        await c.client.create(
            Machine, {"metadata": {"name": "alone", "namespace": "default"}, "spec": alone}
        )

        async def phase_is(expected):
            return await phases(c) == [expected]

        await c.until(lambda: phase_is("Running"))
        c.left["node0"]["memory.available"] = SHORT
        await c.until(lambda: phase_is("Failed"), LOOK)
        (machine,) = await c.machines()
        assert machine.status.reason == "Evicted"
        (pod,) = await c.pods()
        assert (pod.status.phase, pod.status.reason) == ("Failed", "Evicted")
        assert pod.status.message.startswith("The node was low on resource: memory. ")
        (target,) = [one for one in pod.status.conditions if one.type == "DisruptionTarget"]
        assert (target.status, target.reason) == ("True", "TerminationByKubelet")
        assert target.message == pod.status.message


async def test_vmis_of_the_lowest_priority_are_evicted_first_and_one_at_a_time():
    async with cluster() as c:
        for name, value in (("low", 1), ("high", 1000)):
            priority = {"metadata": {"name": name}, "value": value}
            await c.client.request(
                "POST", "/apis/scheduling.k8s.io/v1/priorityclasses", document=priority
            )
            document = replica_set(name, 2)
            document["spec"]["template"]["spec"]["priorityClassName"] = name
            await c.client.create(ReplicaSet, document)

        async def run():
            return await phases(c) == ["Running"] * 4

        await c.until(run)
        c.left["node0"]["memory.available"] = SHORT
        await asyncio.sleep(0.9 * PERIOD_SECONDS)

        async def gone(count):
            return len(await events(c, "Evicted")) == count

        for count in (1, 2, 3, 4):
            await c.until(lambda count=count: gone(count), LOOK)
            names = [one.involvedObject.name for one in await events(c, "Evicted")]
            lows = sum("low" in name for name in names)
            assert lows == min(count, 2)


async def test_an_evicted_vmi_is_replaced_on_another_node():
    async with cluster(nodes=2) as c:
        await c.client.create(ReplicaSet, replica_set())
        await c.until_ready("test", 3)
        for each in list(c.left):
            c.left[each]["memory.available"] = SHORT if each == "node0" else ENOUGH

        async def all_are_elsewhere():
            machines = await c.machines()
            return {one.status.node_name for one in machines} == {"node1"} and len(machines) == 3

        await c.until(all_are_elsewhere, 5 * LOOK)
        await c.until_ready("test", 3)


async def test_without_pressure_nothing_is_written():
    async with cluster() as c:
        await c.client.create(ReplicaSet, replica_set(replicas=1))
        await c.until_ready("test", 1)
        c.left["node0"]["memory.available"] = ENOUGH
        await asyncio.sleep(30)
        version = (await c.client.get(Node, NODE.name)).metadata.resourceVersion
        await asyncio.sleep(60)
        assert (await c.client.get(Node, NODE.name)).metadata.resourceVersion == version


async def test_on_a_full_disk_the_vmi_with_the_most_usage_is_evicted_and_its_space_freed():
    async with cluster() as c:
        await c.client.create(ReplicaSet, replica_set(replicas=2))
        await c.until_ready("test", 2)
        c.left["node0"]["nodefs.available"] = SHORT
        await asyncio.sleep(3 * LOOK)
        assert (await condition(c, DISK_PRESSURE)).reason == "KubeletHasDiskPressure"
        assert await events(c, "Evicted") == [], "who holds next to nothing frees nothing"
        large, other = [c.directory(machine) for machine in await c.machines()]
        (large / "root.qcow2").write_bytes(bytes(3 * MEBIBYTE))
        (other / "root.qcow2").write_bytes(bytes(2 * MEBIBYTE))

        async def is_evicted():
            return len(await events(c, "Evicted")) == 1

        await c.until(is_evicted, LOOK)
        c.left["node0"]["nodefs.available"] = ENOUGH
        await asyncio.sleep(LOOK)
        (event,) = await events(c, "Evicted")
        assert event.message == (
            "The node was low on resource: ephemeral-storage. Threshold quantity: 200Mi, "
            "available: 50Mi. Container compute was using 3080Ki, request is 0, "
            "has larger consumption of ephemeral-storage. "
        )
        assert not (large / "root.qcow2").exists()
        assert (other / "root.qcow2").exists()


async def test_without_inodes_nothing_starts_and_nothing_is_evicted():
    async with cluster() as c:
        await c.client.create(ReplicaSet, replica_set())
        await c.until_ready("test", 3)
        before = {machine.metadata.uid for machine in await c.machines()}
        c.left["node0"]["nodefs.inodesFree"] = Observation(10, 10_000)
        await asyncio.sleep(20 * LOOK)
        assert (await condition(c, DISK_PRESSURE)).status == "True"
        assert {machine.metadata.uid for machine in await c.machines()} == before
        assert await phases(c) == ["Running"] * 3
        assert await events(c, "EvictionThresholdMet") == []


async def test_an_eviction_is_completed_by_a_restarted_manager():
    async with cluster() as c:
        await c.client.create(ReplicaSet, replica_set(replicas=1))
        await c.until_ready("test", 1)
        (machine,) = await c.machines()
        directory = c.directory(machine)
        c.kill_agent("node0")
        record = records.read(directory)
        records.write(directory, msgspec.structs.replace(record, evicted="It was short."))
        c.start_node("node0")

        async def is_replaced():
            return machine.metadata.uid not in {one.metadata.uid for one in await c.machines()}

        await c.until(is_replaced, 30)
        stopped = [one.message for one in await c.events(machine.metadata.name)]
        assert "It was short." in stopped
        await c.until_ready("test", 1)


async def test_nodes_of_one_host_share_pressure_and_evict_one_vmi_at_a_time():
    async with cluster(nodes=2, one_host=True) as c:
        await c.client.create(ReplicaSet, replica_set(replicas=4))
        await c.until_ready("test", 4)
        c.left["host"]["memory.available"] = SHORT

        async def first_is_gone():
            return bool(await events(c, "Evicted"))

        await c.until(first_is_gone, LOOK)
        await asyncio.sleep(1)
        assert len(await events(c, "Evicted")) == 1
        for node in ("node0", "node1"):
            status = (await c.client.get(Node, node)).status
            conditions = {each.type: each.status for each in status.conditions}
            assert conditions[MEMORY_PRESSURE] == "True"


async def test_a_node_restarted_under_pressure_reports_it_from_the_start():
    async with cluster() as c:
        await c.client.create(ReplicaSet, replica_set(replicas=1))
        await c.until_ready("test", 1)
        c.left["node0"]["memory.available"] = SHORT
        await asyncio.sleep(LOOK)
        assert await phases(c) == ["Scheduling"]
        c.kill_agent("node0")
        c.start_node("node0")
        for _ in range(100):
            assert (await condition(c, MEMORY_PRESSURE)).status == "True"
            await asyncio.sleep(0.1)
        assert await phases(c) == ["Scheduling"]
        assert len(await events(c, "Evicted")) == 1


async def test_an_evicted_machine_that_does_not_stop_is_awaited_for_a_limited_time():
    async with cluster() as c:
        await c.client.create(ReplicaSet, replica_set(replicas=2))
        await c.until_ready("test", 2)
        for machine in await c.machines():
            c.guest(machine).stuck = True
        c.left["node0"]["memory.available"] = SHORT
        await asyncio.sleep(CLEANUP_SECONDS)
        assert len(await events(c, "Evicted")) == 1
        await asyncio.sleep(LOOK)
        assert len(await events(c, "Evicted")) == 2
        await asyncio.sleep(CLEANUP_SECONDS + LOOK)
        assert len(await events(c, "Evicted")) == 2
