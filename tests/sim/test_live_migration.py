"""Live migration as its users see it: requests, limits, cancellations, drains."""

import asyncio

import pytest
from lightkube.models.core_v1 import Node, Pod
from tests.sim.cluster import Cluster, cluster
from tests.sim.drains import drain, evict, pods_on
from tests.sim.migrations import (
    cancel,
    in_phase,
    migrate,
    migration,
    running,
    slow,
    started,
    vmi,
)

from corral.api.errors import NotFound, TooManyRequests
from corral.api.kinds.kubevirt.installation import KEY, KubeVirt
from corral.api.kinds.kubevirt.migration import VirtualMachineInstanceMigration as Migration
from corral.api.object import Key
from corral.cli.virtctl.target import Target
from corral.controllers.vmi.migration.history import KEPT
from corral.reconcile.objects import annotations_of, key_of

pytestmark = pytest.mark.looptime
PASSED = [
    *("Pending", "Scheduling", "Scheduled", "PreparingTarget", "TargetReady", "Running"),
    "Succeeded",
]


async def test_a_migration_moves_a_vmi_and_nothing_else():
    async with cluster(nodes=2) as c:
        [before] = await started(c)
        memory = running(c)
        await migrate(c, before)
        done = await in_phase(c, "Succeeded", "Failed")
        after = await vmi(c, before)
        state = after.status.migration_state
        assert done.status.phase == "Succeeded", state
        assert [each.phase for each in done.status.phase_transition_timestamps] == PASSED
        assert done.status.migration_state.target_node == after.status.node_name
        assert done.status.migration_state.source_node == before.status.node_name
        assert after.status.node_name != before.status.node_name
        assert after.metadata.uid == before.metadata.uid
        assert running(c) == memory
        assert "kubevirt.io/migrationTargetNodeName" not in after.metadata.labels
        assert state.migration_configuration["progressTimeout"] == 150

        async def is_settled():
            status = (await c.replica_set("test")).status
            pods = {pod.status.phase for pod in await c.pods("default")}
            migrated = await migration(c)
            active = list((await vmi(c, before)).status.active_pods.values())
            return (
                (status.replicas, status.ready_replicas) == (1, 1)
                and pods == {"Running", "Succeeded"}
                and not migrated.metadata.finalizers
                and active == [after.status.node_name]
            )

        await c.until(is_settled)
        reasons = {each.reason for each in await c.events("move")}
        assert {"SuccessfulCreate", "SuccessfulHandOver", "SuccessfulMigration"} <= reasons


async def test_a_vmi_moves_to_and_fro_and_five_migrations_are_kept():
    async with cluster(nodes=2) as c:
        [machine] = await started(c)
        memory = running(c)
        for number in range(8):
            before = (await vmi(c, machine)).status.node_name
            await migrate(c, machine, f"m{number}")
            done = await in_phase(c, "Succeeded", "Failed", name=f"m{number}")
            assert done.status.phase == "Succeeded"
            assert (await vmi(c, machine)).status.node_name != before
            assert running(c) == memory

        async def is_tidy():
            names = [each.metadata.name for each in (await c.client.list(Migration)).items]
            return names == [f"m{number}" for number in range(3, 8)]

        await c.until(is_tidy)
        assert len(await c.pods("default")) == 6
        assert (await c.replica_set("test")).status.ready_replicas == 1


async def test_pods_do_not_pile_up_where_a_user_deletes_the_migrations():
    async with cluster(nodes=2) as c:
        [machine] = await started(c)
        for number in range(9):
            await migrate(c, machine, f"m{number}")
            await in_phase(c, "Succeeded", name=f"m{number}")
            await cancel(c, f"m{number}")
            await asyncio.sleep(1)
        pods = [each.status.phase for each in await c.pods("default")]
        assert pods.count("Running") == 1
        assert pods.count("Succeeded") <= KEPT + 1  # the last migration's goes with the next one


@pytest.mark.parametrize("phase", PASSED[:-1])
async def test_a_cancelled_migration_leaves_the_vmi_where_it_is(phase):
    async with cluster(nodes=2) as c:
        [before] = await started(c)
        memory = running(c)
        slow(c, 30)
        await migrate(c, before)
        while (await migration(c)).status.phase not in PASSED[PASSED.index(phase) : -1]:
            await asyncio.sleep(0)
        await cancel(c)

        async def is_gone():
            try:
                await migration(c)
            except NotFound:
                return True
            return False

        await c.until(is_gone)
        after = await vmi(c, before)
        assert (after.status.phase, after.status.node_name) == ("Running", before.status.node_name)

        async def is_clean():
            return len(await c.pods("default")) == 1

        await c.until(is_clean)
        assert running(c) == memory
        await migrate(c, before, "again")
        assert (await in_phase(c, "Succeeded", "Failed", name="again")).status.phase == "Succeeded"


async def test_an_unschedulable_target_fails_the_migration_in_time():
    async with cluster(nodes=1) as c:
        [before] = await started(c)
        await migrate(c, before)
        done = await in_phase(c, "Failed")
        assert [each.phase for each in done.status.phase_transition_timestamps] == [
            *("Pending", "Scheduling", "Failed"),
        ]
        messages = {each.reason: each.message for each in await c.events("move")}
        assert messages["FailedMigration"] == (
            "Migration target pod was removed during active migration."
        )
        assert "timeout period exceeded" in messages["SuccessfulDelete"]
        assert (await vmi(c, before)).status.phase == "Running"
        assert len(await c.pods("default")) == 1


def limited(number):
    """A KubeVirt object that lets so many migrations run at once."""
    names = ("parallelMigrationsPerCluster", "parallelOutboundMigrationsPerNode")
    migrations = dict.fromkeys(names, number)
    return {
        "metadata": {"name": KEY.name, "namespace": KEY.namespace},
        "spec": {"configuration": {"migrations": migrations}},
    }


async def test_limits_hold_and_all_migrations_succeed():
    async with cluster(nodes=2) as c:
        machines = await started(c, 12)
        memory = sorted(map(str, running(c)))
        slow(c, 5)
        for number, machine in enumerate(machines):
            await migrate(c, machine, f"m{number}")
        most = 0

        async def are_done():
            nonlocal most
            listed = (await c.client.list(Migration)).items
            active = [each for each in listed if each.status.phase in PASSED[1:-1]]
            most = max(most, len(active))
            sources = [each.status.migration_state.source_node for each in active
                       if each.status.migration_state]  # fmt: skip
            assert all(sources.count(node) <= 2 for node in sources)
            return all(each.status.phase == "Succeeded" for each in listed)

        await c.until(are_done, 600)
        assert 2 <= most <= 4
        assert sorted(map(str, running(c))) == memory


async def test_migrations_that_wait_start_once_the_limit_grows_or_one_is_cancelled():
    async with cluster(nodes=2) as c:
        machines = await started(c, 8)
        slow(c, 30)
        await c.client.create(KubeVirt, limited(1))
        for number, machine in enumerate(machines):
            await migrate(c, machine, f"m{number}")

        async def active():
            listed = (await c.client.list(Migration)).items
            return {each.metadata.name for each in listed if each.status.phase in PASSED[1:-1]}

        await asyncio.sleep(10)
        [first] = await active()
        await cancel(c, first)
        await asyncio.sleep(10)
        [second] = await active()
        assert second != first
        await c.client.patch(KubeVirt, KEY, limited(3))
        await asyncio.sleep(10)
        assert len(await active()) == 3
        waiting = sorted(set(map("m{}".format, range(8))) - await active() - {first})
        await cancel(c, waiting[0])
        for name in waiting[1:]:
            await in_phase(c, "Succeeded", name=name)


async def test_a_drain_moves_ten_vmis():
    async with cluster(nodes=1) as c:
        machines = await started(c, 10)
        memory = sorted(map(str, running(c)))
        c.start_node("node1")
        assert {each.status.node_name for each in machines} == {"node0"}
        refused = await drain(c, "node0")
        assert refused >= 10
        after = await c.machines("default")
        assert {each.metadata.uid for each in after} == {each.metadata.uid for each in machines}
        assert {each.status.node_name for each in after} == {"node1"}
        assert sorted(map(str, running(c))) == memory
        left = [pod for pod in await pods_on(c, "node0") if pod.status.phase == "Running"]
        assert left == []
        assert not any(each.status.evacuation_node_name for each in after)
        names = [each.metadata.name for each in (await c.client.list(Migration)).items]
        assert all(name.startswith("kubevirt-evacuation-") for name in names)


def marked(pod: Pod) -> str | None:
    """What tells the descheduler that a pod is being evicted."""
    return annotations_of(pod).get("descheduler.alpha.kubernetes.io/eviction-in-progress")


async def is_gone(c: Cluster, name: str) -> bool:
    return name not in {each.metadata.name for each in (await c.client.list(Migration)).items}


async def test_a_pod_says_while_its_vmi_is_evacuated_that_the_descheduler_need_not_evict_it():
    async with cluster(nodes=2) as c:
        [before] = await started(c)
        node = before.status.node_name
        [pod] = await pods_on(c, node)
        evict_only = "descheduler.alpha.kubernetes.io/request-evict-only"
        assert annotations_of(pod).get(evict_only) == ""
        slow(c, 60)
        await migrate(c, before)
        await in_phase(c, "Running")
        assert [marked(each) for each in await c.pods("default")] == [None, None], "nobody evicts"
        await cancel(c)
        await c.until(lambda: is_gone(c, "move"))
        with pytest.raises(TooManyRequests):
            await evict(c, key_of(pod))

        async def begins():
            return any(
                each.status.phase == "Running" for each in (await c.client.list(Migration)).items
            )

        await c.until(begins)
        assert [marked(each) for each in await pods_on(c, node)] == ["kubevirt"]
        path = Target("vmi", before.metadata.name, "default").path("evacuate/cancel")
        await c.client.request("PUT", path, document={})
        [moving] = [each for each in (await c.client.list(Migration)).items if not each.is_final]
        await cancel(c, moving.metadata.name)

        async def stays():
            return [marked(each) for each in await c.pods("default")] == [None]

        await c.until(stays)


async def test_the_taint_of_drained_nodes_evacuates_them():
    async with cluster(nodes=2) as c:
        [before] = await started(c)
        node = before.status.node_name
        taint = {"key": "kubevirt.io/drain", "effect": "NoSchedule"}
        await c.client.patch(Node, Key("", node), {"spec": {"taints": [taint]}})

        async def has_moved():
            now = await vmi(c, before)
            return now.status.node_name != node and now.metadata.uid == before.metadata.uid

        await c.until(has_moved)


async def test_a_new_key_of_the_taint_of_drained_nodes_evacuates_those_that_have_it():
    async with cluster(nodes=2, about_itself=True) as c:
        [before] = await started(c)
        node = before.status.node_name
        taint = {"key": "example.com/leave", "effect": "NoSchedule"}
        await c.client.patch(Node, Key("", node), {"spec": {"taints": [taint]}})
        await asyncio.sleep(10)
        assert (await vmi(c, before)).status.node_name == node
        migrations = {"nodeDrainTaintKey": "example.com/leave"}
        changed = {"spec": {"configuration": {"migrations": migrations}}}
        await c.client.patch(KubeVirt, KEY, changed)

        async def has_moved():
            now = await vmi(c, before)
            return now.status.node_name != node and now.metadata.uid == before.metadata.uid

        await c.until(has_moved)


async def test_a_cancelled_evacuation_leaves_the_vmi_where_it_is():
    async with cluster(nodes=1) as c:
        [before] = await started(c)
        [pod] = await c.pods("default")
        path = Target("vmi", before.metadata.name, "default").path("evacuate/cancel")

        async def migrations():
            return (await c.client.list(Migration)).items

        async def waits():
            return [each.status.phase for each in await migrations()] == ["Scheduling"]

        async def stays():
            pods = [key_of(each) for each in await c.pods("default")]
            return (await migrations(), pods) == ([], [key_of(pod)])

        for _ in range(2):
            with pytest.raises(TooManyRequests):
                await evict(c, key_of(pod))
            await c.until(waits)
            await c.client.request("PUT", path, document={})
            await c.until(stays)
        c.start_node("node1")
        await asyncio.sleep(60)
        after = await vmi(c, before)
        assert (after.status.node_name, after.status.evacuation_node_name) == ("node0", "")
        assert "SuccessfulDelete" in {each.reason for each in await c.events(before.metadata.name)}


async def test_a_drain_that_is_over_before_a_vmi_could_move_leaves_it_there():
    async with cluster(nodes=1) as c:
        [before] = await started(c)
        taint = {"key": "kubevirt.io/drain", "effect": "NoSchedule"}
        await c.client.patch(Node, Key("", "node0"), {"spec": {"taints": [taint]}})

        async def number(count):
            return len((await c.client.list(Migration)).items) == count

        await c.until(lambda: number(1))
        await c.client.patch(Node, Key("", "node0"), {"spec": {"taints": None}})
        await c.until(lambda: number(0))
        c.start_node("node1")
        await asyncio.sleep(60)
        assert (await vmi(c, before)).status.node_name == "node0"


async def test_a_vmi_that_is_deleted_takes_its_migration_along():
    async with cluster(nodes=2) as c:
        [before] = await started(c)
        slow(c, 30)
        await migrate(c, before)
        await in_phase(c, "Running")
        await c.client.delete(type(before), before.key)

        async def are_gone():
            pods = [pod for pod in await c.pods("default") if before.metadata.name in
                    key_of(pod).name]  # fmt: skip
            return not (await c.client.list(Migration)).items and not pods

        await c.until(are_gone)
        await c.until_ready("test", 1)
        assert len(running(c)) == 1


@pytest.mark.parametrize("seed", range(6))
async def test_migrations_go_on_after_the_controllers_died(seed):
    async with cluster(nodes=2) as c:
        machines = await started(c, 3)
        memory = sorted(map(str, running(c)))
        slow(c, 2)
        for number, machine in enumerate(machines):
            await migrate(c, machine, f"m{number}")
        for _ in range(4):
            await asyncio.sleep(0.01 * (seed + 1) ** 2)
            await c.crash_loops()
            c.start_loops()

        async def are_done():
            listed = (await c.client.list(Migration)).items
            return all(each.is_final for each in listed)

        await c.until(are_done, 600)
        assert sorted(map(str, running(c))) == memory
        assert {each.status.phase for each in await c.machines("default")} == {"Running"}
        listed = (await c.client.list(Migration)).items
        assert {each.status.phase for each in listed} == {"Succeeded"}


async def test_the_target_of_a_migration_that_ends_is_no_replica():
    async with cluster(nodes=2) as c:
        [before] = await started(c)
        slow(c, 20)
        await migrate(c, before)
        await in_phase(c, "Running")
        status = (await c.replica_set("test")).status
        assert (status.replicas, status.ready_replicas) == (1, 1)
        now = await vmi(c, before)
        assert sorted(now.status.active_pods.values()) == ["node0", "node1"]
        ready = [
            pod.spec.nodeName
            for pod in (await c.client.list(Pod, "default")).items
            if any(each.type == "Ready" and each.status == "True" for each in pod.status.conditions)
        ]
        assert ready == [before.status.node_name]


async def test_a_target_node_that_dies_costs_the_migration_alone():
    async with cluster(nodes=2) as c:
        [before] = await started(c)
        memory = running(c)
        c.kill_agent(next(name for name in c.agents if name != before.status.node_name))
        await migrate(c, before)
        done = await in_phase(c, "Failed", "Succeeded")
        await asyncio.sleep(600)
        after = await vmi(c, before)
        assert done.status.phase == "Failed"
        assert (after.status.phase, after.status.node_name) == ("Running", before.status.node_name)
        assert after.metadata.uid == before.metadata.uid
        assert running(c) == memory
        assert (await c.replica_set("test")).status.ready_replicas == 1
