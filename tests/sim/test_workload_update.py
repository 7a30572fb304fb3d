"""Updates of QEMU as users see them: outdated VMIs are labelled, counted, and renewed."""

import asyncio

import pytest
from lightkube.models.core_v1 import Node
from tests.sim.cluster import ADMIN, Cluster, Faults, Faulty, cluster, replica_set
from tests.sim.migrations import cancel, migrate, movable_set, running, slow, started

from corral.api.kinds.kubevirt.installation import KEY, KubeVirt
from corral.api.kinds.kubevirt.migration import VirtualMachineInstanceMigration as Migration
from corral.api.kinds.kubevirt.replicaset import VirtualMachineInstanceReplicaSet as ReplicaSet
from corral.api.kinds.vmi.launcher import NODE_LAUNCHER, OUTDATED_LABEL
from corral.api.object import Key
from corral.cli.manager.upgrade import _move_all
from corral.client.client import Client
from corral.client.transport import InProcess
from corral.controllers.workload_update.workload_update_controller import WorkloadUpdates

pytestmark = pytest.mark.looptime

OLD, NEW = "corral/launcher:1 hollow 1", "corral/launcher:1 hollow 2"


async def configure(c: Cluster, *methods: str, parallel: int = 5, **strategy) -> None:
    """Create the KubeVirt object."""
    settings = {"parallelMigrationsPerCluster": parallel, "parallelOutboundMigrationsPerNode": 9}
    await c.client.create(
        KubeVirt,
        {
            "metadata": {"name": KEY.name, "namespace": KEY.namespace},
            "spec": {
                "configuration": {"migrations": settings},
                "workloadUpdateStrategy": {"workloadUpdateMethods": list(methods), **strategy},
            },
        },
    )


def install(c: Cluster, version: str = "2") -> None:
    """Install another version of the hypervisor on every node."""
    for agent in c.agents.values():
        agent.hypervisor.version = version


async def count(c: Cluster) -> int | None:
    status = (await c.client.get(KubeVirt, KEY.name, KEY.namespace)).status
    return status.outdated_virtual_machine_instance_workloads


async def is_outdated(c: Cluster, number: int) -> bool:
    """Whether so many VMIs are labelled and counted as outdated."""
    labelled = [vmi for vmi in await c.machines() if OUTDATED_LABEL in vmi.metadata.labels]
    return await count(c) == len(labelled) == number


async def migrations(c: Cluster) -> list[Migration]:
    return (await c.client.list(Migration)).items


def launchers(vmis) -> list[str]:
    return sorted(vmi.status.launcher_container_image_version for vmi in vmis)


async def test_outdated_vmis_are_labelled_and_counted_and_stay_without_a_method():
    async with cluster(nodes=2) as c:
        machines = await started(c, 3)
        await configure(c)
        await c.until(lambda: is_outdated(c, 0))
        assert launchers(machines) == [OLD] * 3
        install(c)
        await c.until(lambda: is_outdated(c, 3))
        await asyncio.sleep(600)
        assert await migrations(c) == []
        assert launchers(await c.machines()) == [OLD] * 3
        nodes = (await c.client.list(Node)).items
        assert {node.metadata.annotations[NODE_LAUNCHER] for node in nodes} == {NEW}
        reported = await c.metrics()
        assert reported.value("kubevirt_vmi_number_of_outdated") == 3


async def test_outdated_vmis_migrate_a_few_at_a_time():
    async with cluster(nodes=2) as c:
        machines = await started(c, 10)
        await configure(c, "LiveMigrate", "Evict", parallel=3)
        memory = sorted(map(str, running(c)))
        slow(c, 5)
        install(c)
        most = 0

        async def are_renewed():
            nonlocal most
            most = max(most, sum(not each.is_final for each in await migrations(c)))
            return await is_outdated(c, 0) and launchers(await c.machines()) == [NEW] * 10

        await c.until(are_renewed, 600)
        assert most == 3
        after = await c.machines()
        assert {vmi.metadata.uid for vmi in after} == {vmi.metadata.uid for vmi in machines}
        assert sorted(map(str, running(c))) == memory
        made = await migrations(c)
        assert len(made) == 10
        assert {each.spec.priority for each in made} == {"system-critical"}
        for each in made:
            assert each.metadata.name.startswith("kubevirt-workload-update-")
            assert each.metadata.annotations["kubevirt.io/workloadUpdateMigration"] == ""
        events = {each.reason: each.message for each in await c.events(made[0].spec.vmi_name)}
        assert events["SuccessfulCreate"] == (
            f"Created Migration {made[0].metadata.name} for automated workload update"
        )
        await asyncio.sleep(600)
        assert len(await migrations(c)) == 10


async def test_vmis_that_cannot_migrate_are_evicted_in_batches():
    async with cluster(nodes=2) as c:
        document = movable_set(replicas=5)
        devices = document["spec"]["template"]["spec"]["domain"]["devices"]
        devices["interfaces"] = [{"name": "default", "bridge": {}}]
        del document["spec"]["template"]["spec"]["evictionStrategy"]
        await c.client.create(ReplicaSet, document)
        await c.until_ready("test", 5)
        await configure(
            c, "LiveMigrate", "Evict", batchEvictionSize=2, batchEvictionInterval="5m0s"
        )
        first = {vmi.metadata.uid for vmi in await c.machines()}
        install(c)
        await asyncio.sleep(100)
        await c.until_ready("test", 5)
        for left in (3, 1, 0):
            after = await c.machines()
            assert len(first & {vmi.metadata.uid for vmi in after}) == left
            assert launchers(after) == [OLD] * left + [NEW] * (5 - left)
            assert await is_outdated(c, left)
            await asyncio.sleep(300)
        assert await migrations(c) == []


async def test_an_eviction_that_is_refused_is_tried_again_and_holds_up_no_other():
    async with cluster(nodes=1) as c:
        guarded = movable_set("guarded")  # cannot leave its only node
        spec = guarded["spec"]["template"]["spec"]
        spec["domain"]["devices"]["interfaces"] = [{"name": "default", "bridge": {}}]
        await c.client.create(ReplicaSet, guarded)
        await asyncio.sleep(10)
        await c.client.create(ReplicaSet, replica_set("free", 2))

        async def are_running():
            return [vmi.status.phase for vmi in await c.machines()] == ["Running"] * 3

        await c.until(are_running)
        await configure(c, "Evict", batchEvictionSize=1, batchEvictionInterval="1m0s")
        install(c)
        await c.until(lambda: is_outdated(c, 1), 600)
        [left] = [vmi for vmi in await c.machines() if OUTDATED_LABEL in vmi.metadata.labels]
        assert left.metadata.labels["app"] == "guarded"
        failed = [
            each for each in await c.events(left.metadata.name) if each.reason == "FailedEvict"
        ]
        assert "not live-migratable" in failed[0].message
        before = sum(each.count or 1 for each in failed)
        await asyncio.sleep(300)
        failed = [
            each for each in await c.events(left.metadata.name) if each.reason == "FailedEvict"
        ]
        assert sum(each.count or 1 for each in failed) > before


async def test_a_migration_is_cancelled_if_the_old_version_is_installed_again():
    async with cluster(nodes=2) as c:
        [before] = await started(c)
        await configure(c, "LiveMigrate")
        slow(c, 120)
        install(c)

        async def migrates():
            return [each.status.phase for each in await migrations(c)] == ["Running"]

        await c.until(migrates)
        install(c, "1")

        async def is_cancelled():
            return await migrations(c) == [] and await is_outdated(c, 0)

        await c.until(is_cancelled)
        [after] = await c.machines()
        assert (after.metadata.uid, after.status.node_name, after.status.phase) == (
            before.metadata.uid, before.status.node_name, "Running",
        )  # fmt: skip
        assert len(running(c)) == 1


async def test_a_version_that_was_installed_while_the_agent_was_down_is_noticed():
    async with cluster(nodes=2) as c:
        [vmi] = await started(c)
        await configure(c)
        node = vmi.status.node_name
        c.kill_agent(node)
        c.agents[node].hypervisor.version = "2"
        c.start_node(node)
        await c.until(lambda: is_outdated(c, 1))
        assert launchers(await c.machines()) == [OLD]


@pytest.mark.parametrize("seed", range(6))
async def test_each_vmi_moves_once_though_the_controllers_die(seed):
    async with cluster(nodes=2) as c:
        await started(c, 4)
        await configure(c, "LiveMigrate", parallel=2)
        memory = sorted(map(str, running(c)))
        slow(c, 2)
        install(c)
        await c.until(lambda: is_outdated(c, 4))
        for _ in range(5):
            await asyncio.sleep(0.05 * (seed + 1) ** 2)
            await c.crash_loops()
            c.start_loops()
        await c.until(lambda: is_outdated(c, 0), 600)
        assert sorted(map(str, running(c))) == memory
        await asyncio.sleep(60)
        made = await migrations(c)
        assert sorted(each.status.phase for each in made) == ["Succeeded"] * 4


def progress(capsys) -> list[str]:
    """The lines that the command has printed, without those of the log."""
    return [line for line in capsys.readouterr().out.splitlines() if line.startswith("[")]


async def test_corral_upgrade_moves_a_few_machines_at_a_time_and_waits_for_those_that_move(capsys):
    async with cluster(nodes=2) as c:
        machines = await started(c, 4)
        memory = sorted(map(str, running(c)))
        slow(c, 5)
        install(c)
        await c.until(lambda: nodes_start(c, NEW))
        await migrate(c, machines[0])
        most, moving = 0, asyncio.create_task(_move_all(c.client, machines, 2))
        while not moving.done():
            most = max(most, sum(not each.is_final for each in await migrations(c)))
            await asyncio.sleep(0.5)
        assert await moving == 4
        assert most == 2
        assert len(await migrations(c)) == 4
        assert launchers(await c.machines()) == [NEW] * 4
        assert sorted(map(str, running(c))) == memory
        lines = progress(capsys)
        assert [line.partition(" ")[0] for line in lines] == ["[1/4]", "[2/4]", "[3/4]", "[4/4]"]
        assert all(" moved in " in line for line in lines)


async def nodes_start(c: Cluster, launcher: str) -> bool:
    nodes = (await c.client.list(Node)).items
    return {node.metadata.annotations.get(NODE_LAUNCHER) for node in nodes} == {launcher}


async def test_corral_upgrade_reports_machines_that_stay(capsys):
    async with cluster(nodes=2) as c:
        first, second = await started(c, 2)
        slow(c, 30)
        await migrate(c, first)
        await c.client.patch(Node, Key("", "node0"), {"spec": {"unschedulable": True}})
        await c.client.patch(Node, Key("", "node1"), {"spec": {"unschedulable": True}})
        moving = asyncio.create_task(_move_all(c.client, [first, second], 2))
        await asyncio.sleep(10)
        await cancel(c)
        assert await moving == 0
        cancelled, failed = progress(capsys)
        assert cancelled.startswith(f"[1/2] {first.key} stays: ")
        assert failed.startswith(f"[2/2] {second.key} stays: kubectl describe vmim kubevirt-work")
        assert failed.endswith(" -n default says why")
        assert len(running(c)) == 2


@pytest.mark.parametrize(("down", "count"), [(5, 1), (300, 0)])
async def test_corral_upgrade_waits_for_a_server_that_restarts_and_no_longer(capsys, down, count):
    async with cluster(nodes=2) as c:
        machines = await started(c, 1)
        slow(c, 2)
        faults = Faults(until=float("inf"))
        client = Client(Faulty(InProcess(c.server.handle, ADMIN), faults))
        moving = asyncio.create_task(_move_all(client, machines, 1))
        while not await migrations(c):
            await asyncio.sleep(0.01)
        faults.fail = faults.cut = 1
        await asyncio.sleep(down)
        faults.fail = faults.cut = 0
        assert await moving == count
        [line] = progress(capsys)
        assert (" moved in " if count else " stays: a fault of the test") in line


async def test_a_migration_of_which_the_cache_never_hears_is_created_again(monkeypatch):
    """It may come and go while a watch is interrupted."""
    missed: list[str] = []
    observe = WorkloadUpdates._migration_changed

    def miss_the_first(self, old, new):
        name = (new or old).metadata.name
        if not missed:
            missed.append(name)
        if name not in missed:
            observe(self, old, new)

    monkeypatch.setattr(WorkloadUpdates, "_migration_changed", miss_the_first)
    async with cluster(nodes=2) as c:
        await started(c)
        await configure(c, "LiveMigrate")
        slow(c, 5)
        install(c)

        async def is_created() -> bool:
            return bool(await migrations(c))

        await c.until(is_created)
        await cancel(c, (await migrations(c))[0].metadata.name)

        async def is_renewed() -> bool:
            return launchers(await c.machines()) == [NEW]

        await c.until(is_renewed, 600)
        assert missed
