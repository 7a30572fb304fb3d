"""VirtualMachines that get more sockets and memory while they run, in a whole cluster."""

import asyncio
from dataclasses import replace
from functools import partial

import pytest
from lightkube.models.core_v1 import Namespace, ResourceQuota
from tests.sim.cluster import AMPLE, Cluster, cluster, replica_set
from tests.sim.migrations import running
from tests.sim.pools import Pools
from tests.sim.test_virtual_machine import KEY, vm
from tests.sim.test_workload_update import configure

from corral.api.kinds.kubevirt.installation import KEY as INSTALLATION, KubeVirt
from corral.api.kinds.kubevirt.instancetype import VirtualMachineClusterInstancetype as Instancetype
from corral.api.kinds.kubevirt.pool import REVISION_LABEL
from corral.api.kinds.kubevirt.replicaset import VirtualMachineInstanceReplicaSet as ReplicaSet
from corral.api.kinds.kubevirt.virtualmachine import VirtualMachine
from corral.api.kinds.vmi.vmi import VirtualMachineInstance as Machine
from corral.api.quantity import amount

pytestmark = pytest.mark.looptime

GROWING = ("HotVCPUChange", "HotMemoryChange", "MigrationRequired")


def large(sockets: int = 1, guest: str = "1Gi", **domain):
    """A VirtualMachine into which memory can be plugged, too."""
    document = vm()
    spec = document["spec"]["template"]["spec"]
    del spec["domain"]["resources"]
    spec["domain"] |= {"cpu": {"sockets": sockets}, "memory": {"guest": guest}, **domain}
    return document


async def change(c: Cluster, **spec) -> None:
    await c.client.patch(VirtualMachine, KEY, {"spec": {"template": {"spec": spec}}})


async def machine(c: Cluster) -> Machine:
    return await c.client.get(Machine, KEY.name, KEY.namespace)


def shown(one: Machine) -> tuple[int, str]:
    """The sockets and the memory in a VMI's status."""
    return one.status.current_cpu_topology.sockets, str(amount(one.status.memory.guest_current))


async def has(c: Cluster, *size) -> bool:
    """Whether the VMI has such a size, and nothing is being plugged in."""
    found = await machine(c)
    growing = [each for each in found.status.conditions if each.type in GROWING]
    return shown(found) == size and not growing


async def configured(c: Cluster, *methods: str, **configuration) -> None:
    """Create the KubeVirt object, with its namespace."""
    await c.client.create(Namespace, {"metadata": {"name": INSTALLATION.namespace}})
    await configure(c, *methods)
    await c.client.patch(KubeVirt, INSTALLATION, {"spec": {"configuration": configuration}})


async def runs(c: Cluster) -> str:
    async def is_running() -> bool:
        named = [each for each in await c.machines("default") if each.metadata.name == KEY.name]
        return any(each.status.phase == "Running" for each in named)

    await c.until(is_running)
    return (await machine(c)).metadata.uid


async def message(c: Cluster) -> str:
    found = await c.client.get(VirtualMachine, KEY.name, KEY.namespace)
    conditions = found.status.conditions
    return next((each.message for each in conditions if each.type == "RestartRequired"), "")


async def condition(c: Cluster, name: str):
    conditions = (await machine(c)).status.conditions
    return next((each for each in conditions if each.type == name), None)


async def requests(c: Cluster) -> dict:
    [pod] = await c.pods("default")
    compute = next(each for each in pod.spec.containers if each.name == "compute")
    return dict(compute.resources.requests)


async def test_sockets_and_memory_are_plugged_in_while_the_guest_runs():
    async with cluster() as c:
        await c.client.create(VirtualMachine, large())
        uid = await runs(c)
        before = await requests(c)
        await change(c, domain={"cpu": {"sockets": 3}, "memory": {"guest": "2Gi"}})
        await c.until(partial(has, c, 3, "2Gi"))
        found = await machine(c)
        assert found.metadata.uid == uid
        size = await c.guest(found).resizing.query()
        assert (size.processors, size.memory_bytes) == (3, 2 << 30)
        memory = found.status.memory
        assert (memory.guest_at_boot, memory.guest_requested) == ("1Gi", "2Gi")
        after = await requests(c)
        assert amount(after["cpu"]).nanos == 3 * amount(before["cpu"]).nanos
        assert amount(after["memory"]) > amount(before["memory"])
        assert await message(c) == ""
        one = await c.client.get(VirtualMachine, KEY.name, KEY.namespace)
        assert (one.status.observed_generation, one.status.desired_generation) == (2, 2)
        await change(c, domain={"memory": {"guest": "1Gi"}})
        await c.until(partial(has, c, 3, "1Gi"))
        await change(c, domain={"cpu": {"sockets": 2}})

        async def is_required() -> bool:
            return await message(c) == "Reduction of CPU socket count requires a restart"

        await c.until(is_required)
        assert shown(await machine(c))[0] == 3


async def test_a_change_of_placement_reaches_the_vmi():
    async with cluster() as c:
        await c.client.create(VirtualMachine, large())
        uid = await runs(c)
        await change(c, nodeSelector={"kubernetes.io/hostname": "node0"})

        async def is_placed() -> bool:
            return (await machine(c)).spec.node_selector == {"kubernetes.io/hostname": "node0"}

        await c.until(is_placed)
        assert (await machine(c)).metadata.uid == uid
        assert await message(c) == ""


async def test_with_stage_nothing_is_plugged_in():
    async with cluster() as c:
        await configured(c, vmRolloutStrategy="Stage")
        await c.client.create(VirtualMachine, large())
        await runs(c)
        assert (await machine(c)).spec.domain.cpu.max_sockets == 0
        await change(c, domain={"cpu": {"sockets": 2}})

        async def is_required() -> bool:
            return "higher than what's available" in await message(c)

        await c.until(is_required)


async def test_a_guest_takes_memory_when_it_likes():
    async with cluster() as c:
        await c.client.create(VirtualMachine, large())
        await runs(c)
        guest = c.guest(await machine(c))
        guest.resizing.stubborn = True
        await change(c, domain={"memory": {"guest": "2Gi"}})

        async def is_requested() -> bool:
            return (await machine(c)).status.memory.guest_requested == "2Gi"

        await c.until(is_requested)
        await asyncio.sleep(60)
        assert (await condition(c, "HotMemoryChange")).status == "True"
        assert shown(await machine(c)) == (1, "1Gi")
        await guest.resizing.comply()
        await c.until(partial(has, c, 1, "2Gi"))


async def test_a_pod_keeps_the_memory_that_its_guest_does_not_release():
    async with cluster() as c:
        await c.client.create(VirtualMachine, large())
        await runs(c)
        before = await requests(c)
        await change(c, domain={"memory": {"guest": "3Gi"}})
        await c.until(partial(has, c, 1, "3Gi"))
        grown = await requests(c)
        guest = c.guest(await machine(c))
        guest.resizing.stubborn = True
        await change(c, domain={"memory": {"guest": "1Gi"}})
        await asyncio.sleep(60)
        assert (await machine(c)).status.memory.guest_requested == "1Gi"
        assert await requests(c) == grown
        await guest.resizing.comply()
        await c.until(partial(has, c, 1, "1Gi"))
        await asyncio.sleep(5)
        assert amount((await requests(c))["memory"]) == amount(before["memory"])


async def test_a_change_that_is_taken_back_requires_no_migration():
    async with cluster(nodes=1, capacity=small(2)) as c:
        await configured(c, "LiveMigrate")
        await c.client.create(VirtualMachine, large())
        await runs(c)
        await change(c, domain={"memory": {"guest": "3Gi"}})

        async def is_stuck() -> bool:
            return await condition(c, "MigrationRequired") is not None

        await c.until(is_stuck)
        await change(c, domain={"memory": {"guest": "1Gi"}})
        await c.until(partial(has, c, 1, "1Gi"))


async def test_a_quota_refuses_what_the_namespace_may_not_have_until_it_grows():
    async with cluster() as c:
        quota = {"metadata": {"name": "small", "namespace": "default"}}
        quota["spec"] = {"hard": {"requests.memory": "1500Mi"}}
        await c.client.create(ResourceQuota, quota)
        await c.client.create(VirtualMachine, large())
        await runs(c)
        await change(c, domain={"memory": {"guest": "2Gi"}})

        async def is_refused() -> bool:
            found = await condition(c, "HotMemoryChange")
            return found is not None and "exceeded quota: small" in found.message

        await c.until(is_refused)
        assert (await condition(c, "HotMemoryChange")).status == "False"
        assert shown(await machine(c)) == (1, "1Gi")
        more = {"spec": {"hard": {"requests.memory": "4Gi"}}}
        await c.client.patch(ResourceQuota, KEY._replace(name="small"), more)
        await c.until(partial(has, c, 1, "2Gi"), 600)


def small(gibibytes: int):
    """The capacity of a node with so much memory for pods."""
    return replace(AMPLE, memory_bytes=(gibibytes << 30) * 20 // 19)


async def test_a_vmi_migrates_to_a_node_with_room():
    async with cluster(nodes=1, capacity=small(2)) as c:
        await configured(c, "LiveMigrate")
        document = large()
        spec = document["spec"]["template"]["spec"]
        spec["networks"] = [{"name": "default", "pod": {}}]
        spec["domain"]["devices"]["interfaces"] = [{"name": "default", "masquerade": {}}]
        await c.client.create(VirtualMachine, document)
        uid = await runs(c)
        memory = running(c)
        await change(c, domain={"cpu": {"sockets": 2}, "memory": {"guest": "3Gi"}})

        async def is_stuck() -> bool:
            return await condition(c, "MigrationRequired") is not None

        await c.until(is_stuck)
        why = "node node0 has not enough memory left for the changed VMI"
        assert (await condition(c, "MigrationRequired")).message == why
        c.start_node("node1", small(8))
        await c.until(partial(has, c, 2, "3Gi"), 1200)
        found = await machine(c)
        assert (found.metadata.uid, found.status.node_name) == (uid, "node1")
        assert running(c) == memory, "it is the same guest"
        assert found.status.memory.guest_at_boot == "1Gi"


async def test_a_vmi_gets_what_it_waits_for_once_another_machine_has_left():
    async with cluster(nodes=1, capacity=small(4)) as c:
        other = replica_set("other", 1)
        requested = other["spec"]["template"]["spec"]["domain"]["resources"]["requests"]
        requested["memory"] = "2Gi"
        await c.client.create(ReplicaSet, other)
        await c.until_ready("other", 1)
        await c.client.create(VirtualMachine, large())
        await runs(c)
        await change(c, domain={"memory": {"guest": "3Gi"}})

        async def is_stuck() -> bool:
            return await condition(c, "MigrationRequired") is not None

        await c.until(is_stuck)
        await c.scale("other", 0)
        await c.until(partial(has, c, 1, "3Gi"))


async def test_a_hypervisor_that_refuses_is_reported_and_asked_again():
    async with cluster() as c:
        await c.client.create(VirtualMachine, large())
        await runs(c)
        guest = c.guest(await machine(c))
        guest.resizing.fault = "no such device"
        await change(c, domain={"cpu": {"sockets": 2}})

        async def is_reported() -> bool:
            found = await condition(c, "HotVCPUChange")
            return found is not None and found.message == "no such device"

        await c.until(is_reported)
        reasons = [each.reason for each in await c.events(KEY.name)]
        assert "HotPlugFailed" in reasons
        guest.resizing.fault = ""
        await c.until(partial(has, c, 2, "1Gi"), 600)


async def test_an_agent_that_is_killed_meanwhile_goes_on():
    async with cluster() as c:
        await c.client.create(VirtualMachine, large())
        uid = await runs(c)
        c.kill_agent("node0")
        await change(c, domain={"cpu": {"sockets": 4}, "memory": {"guest": "4Gi"}})
        await asyncio.sleep(5)
        c.start_node("node0")
        await c.until(partial(has, c, 4, "4Gi"))
        await c.crash_loops()
        c.start_loops()
        await asyncio.sleep(60)
        assert await has(c, 4, "4Gi")
        assert (await machine(c)).metadata.uid == uid


async def test_another_instance_type_is_plugged_in():
    async with cluster() as c:
        for name, guest in (("small", 1), ("large", 3)):
            size = {"cpu": {"guest": guest}, "memory": {"guest": f"{guest}Gi"}}
            await c.client.create(Instancetype, {"metadata": {"name": name}, "spec": size})
        document = vm()
        document["spec"]["instancetype"] = {"name": "small"}
        del document["spec"]["template"]["spec"]["domain"]["resources"]
        await c.client.create(VirtualMachine, document)
        uid = await runs(c)
        change = {"spec": {"instancetype": {"name": "large"}}}
        await c.client.patch(VirtualMachine, KEY, change)
        await c.until(partial(has, c, 3, "3Gi"))
        assert (await machine(c)).metadata.uid == uid
        assert await message(c) == ""


@pytest.mark.parametrize("strategy", ["proactive", "opportunistic"])
async def test_sockets_of_a_pool_reach_its_members_while_they_run(strategy):
    """Also what kubevirt#15937 asks for: members are not restarted for what can be plugged in."""
    async with cluster() as c:
        web = Pools(c)
        await web.create(3, updateStrategy={strategy: {}})
        await web.until_ready(3)
        before = {vmi.metadata.uid for vmi in await c.machines("default")}
        await web.patch(
            virtualMachineTemplate={
                "spec": {"template": {"spec": {"domain": {"cpu": {"sockets": 2}}}}}
            }
        )

        async def have_two() -> bool:
            vmis = await c.machines("default")
            return all(each.status.current_cpu_topology.sockets == 2 for each in vmis)

        await c.until(have_two)
        await asyncio.sleep(120)
        after = await c.machines("default")
        assert {vmi.metadata.uid for vmi in after} == before
        labels = {vmi.metadata.labels[REVISION_LABEL] for vmi in after}
        assert labels == ({"web-2"} if strategy == "proactive" else {"web-1"})


async def test_members_of_a_pool_are_restarted_for_what_cannot_be_plugged_in():
    async with cluster() as c:
        web = Pools(c)
        await web.create(3, updateStrategy={"proactive": {}})
        await web.until_ready(3)
        before = {vmi.metadata.uid for vmi in await c.machines("default")}
        await web.patch(
            virtualMachineTemplate={
                "spec": {"template": {"spec": {"domain": {"cpu": {"sockets": 9}}}}}
            }
        )

        async def are_others() -> bool:
            vmis = await c.machines("default")
            uids = {each.metadata.uid for each in vmis}
            sizes = {each.spec.domain.cpu.sockets for each in vmis}
            return len(vmis) == 3 and not uids & before and sizes == {9}

        await c.until(are_others, 600)
