"""Replica sets, as their users see them."""

import asyncio

import pytest
from lightkube.models.core_v1 import Pod
from tests.sim.cluster import cluster, replica_set

from corral.api.kinds.kubevirt.replicaset import VirtualMachineInstanceReplicaSet as ReplicaSet
from corral.api.kinds.vmi.vmi import VirtualMachineInstance as Machine
from corral.api.object import Key
from corral.node.hypervisor import Change

pytestmark = pytest.mark.looptime

COMPONENT = "virtualmachineinstancereplicaset-controller"


async def test_a_set_of_three_becomes_ready_and_is_deleted():
    async with cluster() as c:
        await c.client.create(ReplicaSet, replica_set("test", 3))
        await c.until_ready("test", 3)
        machines = await c.machines()
        assert {machine.status.phase for machine in machines} == {"Running"}
        assert {machine.status.node_name for machine in machines} == {"node0"}
        assert all(len(machine.metadata.name) == len("test") + 5 for machine in machines)
        pods = await c.pods()
        assert all(pod.metadata.name.startswith("virt-launcher-test") for pod in pods)
        status = (await c.replica_set("test")).status
        assert status.label_selector == "app=test"
        await c.scale("test", 0)
        await c.until_ready("test", 0)


async def test_each_creation_is_an_event_with_the_message_of_the_user_guide():
    async with cluster() as c:
        await c.client.create(ReplicaSet, replica_set("test", 3))
        await c.until_ready("test", 3)
        names = {machine.metadata.name for machine in await c.machines()}
        events = [e for e in await c.events("test") if e.reason == "SuccessfulCreate"]
        assert {event.message for event in events} == {
            f"Created virtual machine: {name}" for name in names
        }
        assert {(event.type, event.source.component) for event in events} == {("Normal", COMPONENT)}


async def test_a_deleted_vmi_is_replaced():
    async with cluster() as c:
        await c.client.create(ReplicaSet, replica_set("test", 3))
        await c.until_ready("test", 3)
        before = {machine.metadata.uid for machine in await c.machines()}
        victim = (await c.machines())[0]
        await c.client.delete(Machine, victim.key)
        await c.until(lambda: _has_new(c, before))
        await c.until_ready("test", 3)
        after = {machine.metadata.uid for machine in await c.machines()}
        assert before - after == {victim.metadata.uid}


async def _has_new(c, before):
    return bool({machine.metadata.uid for machine in await c.machines()} - before)


async def test_a_vmi_whose_pod_is_deleted_is_replaced():
    async with cluster() as c:
        await c.client.create(ReplicaSet, replica_set("test", 2))
        await c.until_ready("test", 2)
        before = {machine.metadata.uid for machine in await c.machines()}
        pod = (await c.pods())[0]
        await c.client.delete(Pod, Key("default", pod.metadata.name))
        await c.until(lambda: _has_new(c, before))
        await c.until_ready("test", 2)
        after = {machine.metadata.uid for machine in await c.machines()}
        assert before - after == {pod.metadata.ownerReferences[0].uid}


@pytest.mark.parametrize("change", [Change.POWERED_OFF, Change.GONE])
async def test_a_vmi_whose_guest_shuts_down_is_replaced(change):
    async with cluster() as c:
        await c.client.create(ReplicaSet, replica_set("test", 2))
        await c.until_ready("test", 2)
        ended = (await c.machines())[0]
        before = {machine.metadata.uid for machine in await c.machines()}
        c.end(ended, change)
        await c.until(lambda: _has_new(c, before))
        await c.until_ready("test", 2)
        assert ended.metadata.uid not in {m.metadata.uid for m in await c.machines()}
        messages = [e.message for e in await c.events("test") if e.reason == "SuccessfulDelete"]
        assert messages == [f"Deleted finished virtual machine: {ended.metadata.name}"]


@pytest.mark.parametrize(
    ("change", "phase"), [(Change.POWERED_OFF, "Succeeded"), (Change.GONE, "Failed")]
)
async def test_a_failed_vmi_stays_readable_while_its_replacement_runs(change, phase):
    async with cluster() as c:
        await c.client.create(ReplicaSet, replica_set("test", 1))
        await c.until_ready("test", 1)
        (ended,) = await c.machines()
        c.end(ended, change)

        async def is_replaced():
            phases = {m.metadata.uid: m.status.phase for m in await c.machines()}
            return phases.pop(ended.metadata.uid, "") == phase and [*phases.values()] == ["Running"]

        await c.until(is_replaced, 2)
        await asyncio.sleep(3)
        found = await c.client.get(Machine, ended.metadata.name, "default")
        assert found.status.phase == phase
        await c.until_ready("test", 1, 3)


async def test_a_deleted_vmi_is_gone_once_its_guest_has_shut_down():
    async with cluster() as c:
        await c.client.create(ReplicaSet, replica_set("test", 1))
        await c.until_ready("test", 1)
        await c.scale("test", 0)
        await c.until_ready("test", 0, 1)


async def test_a_paused_set_only_updates_its_status():
    async with cluster() as c:
        await c.client.create(ReplicaSet, replica_set("test", 2, paused=True))

        async def says_paused():
            conditions = (await c.replica_set("test")).status.conditions
            return [(one.type, one.status, one.reason, one.message) for one in conditions] == [
                ("ReplicaPaused", "True", "Paused", "Controller got paused")
            ]

        await c.until(says_paused)
        assert await c.machines() == []
        await c.client.patch(ReplicaSet, Key("default", "test"), {"spec": {"paused": False}})
        await c.until_ready("test", 2)
        assert (await c.replica_set("test")).status.conditions == []
        reasons = {event.reason for event in await c.events("test")}
        assert {"SuccessfulPaused", "SuccessfulResumed"} <= reasons


async def test_a_relabelled_vmi_is_released_and_replaced():
    async with cluster() as c:
        await c.client.create(ReplicaSet, replica_set("test", 2))
        await c.until_ready("test", 2)
        freed = (await c.machines())[0]
        await c.client.patch(Machine, freed.key, {"metadata": {"labels": {"app": "debug"}}})

        async def is_free():
            found = await c.client.get(Machine, freed.metadata.name, "default")
            return found.metadata.owner_references == [] and len(await c.machines()) == 3

        await c.until(is_free)
        found = await c.client.get(Machine, freed.metadata.name, "default")
        assert found.status.phase == "Running"


async def test_matching_orphans_are_adopted_and_counted():
    async with cluster() as c:
        await c.client.create(ReplicaSet, replica_set("test", 3))
        await c.until_ready("test", 3)
        before = {machine.metadata.uid for machine in await c.machines()}
        await c.client.delete(ReplicaSet, Key("default", "test"), propagation="Orphan")

        async def are_orphans():
            machines = await c.machines()
            return len(machines) == 3 and not any(m.metadata.owner_references for m in machines)

        await c.until(are_orphans)
        await c.client.create(ReplicaSet, replica_set("test", 2))
        await c.until_ready("test", 2)
        after = {machine.metadata.uid for machine in await c.machines()}
        assert after < before


async def test_vmis_of_another_owner_are_never_touched():
    async with cluster() as c:
        await c.client.create(ReplicaSet, replica_set("one", 1))
        await c.until_ready("one", 1)
        rival = replica_set("two", 1)
        rival["spec"]["selector"] = {"matchLabels": {"app": "one"}}
        rival["spec"]["template"]["metadata"]["labels"] = {"app": "one"}
        mine = (await c.machines())[0]
        await c.client.create(ReplicaSet, rival)

        async def both():
            return len(await c.machines()) == 2

        await c.until(both)
        found = await c.client.get(Machine, mine.metadata.name, "default")
        assert found.metadata.owner_references[0].name == "one"


async def test_scale_in_keeps_ready_vmis_and_those_with_a_high_deletion_cost():
    async with cluster() as c:
        await c.client.create(ReplicaSet, replica_set("test", 4))
        await c.until_ready("test", 4)
        machines = sorted(await c.machines(), key=lambda machine: machine.metadata.name)
        cost = {"controller.kubernetes.io/pod-deletion-cost": "-5"}
        for cheap in machines[1:3]:
            await c.client.patch(Machine, cheap.key, {"metadata": {"annotations": cost}})
        await c.scale("test", 2)
        await c.until_ready("test", 2)
        left = {machine.metadata.name for machine in await c.machines()}
        assert left == {machines[0].metadata.name, machines[3].metadata.name}


async def test_guests_that_end_at_once_are_restarted_with_backoff(looptime):
    async with cluster() as c:
        await c.client.create(ReplicaSet, replica_set("test", 1))
        made = set()

        async def kill_what_runs():
            for machine in await c.machines():
                made.add(machine.metadata.uid)
                if machine.status.phase == "Running":
                    c.end(machine, Change.GONE)
            return looptime > 120

        await c.until(kill_what_runs, 300)
        assert 5 <= len(made) <= 12
        condition = (await c.replica_set("test")).status.conditions[0]
        assert (condition.type, condition.reason) == ("ReplicaFailure", "BackOff")
        assert any(event.reason == "BackOff" for event in await c.events("test"))


async def test_vmis_deleted_soon_after_their_start_are_replaced_at_once(looptime):
    async with cluster() as c:
        await c.client.create(ReplicaSet, replica_set("test", 1))
        for _ in range(12):
            await c.until_ready("test", 1)
            (machine,) = await c.machines()
            await c.client.delete(Machine, machine.key, uid=machine.metadata.uid)

            async def is_gone(uid=machine.metadata.uid):
                return all(each.metadata.uid != uid for each in await c.machines())

            await c.until(is_gone)
        await c.until_ready("test", 1)
        assert looptime < 60
        assert not any(event.reason == "BackOff" for event in await c.events("test"))


async def test_a_rejected_creation_is_reported_and_not_retried_for_each_replica():
    broken = replica_set("test", 100)
    broken["spec"]["template"]["spec"]["domain"]["resources"] = {}
    async with cluster() as c:
        await c.client.create(ReplicaSet, broken)

        async def says_failure():
            conditions = (await c.replica_set("test")).status.conditions
            return [(one.type, one.reason) for one in conditions] == [
                ("ReplicaFailure", "FailedCreate")
            ]

        await c.until(says_failure)
        events = [e for e in await c.events("test") if e.reason == "FailedCreate"]
        assert events
        assert events[0].message.startswith("Error creating virtual machine instance: ")


@pytest.mark.parametrize("policy", ["Background", "Foreground"])
async def test_deleting_a_set_deletes_its_vmis(policy):
    async with cluster() as c:
        await c.client.create(ReplicaSet, replica_set("test", 5))
        await c.until_ready("test", 5)
        await c.client.delete(ReplicaSet, Key("default", "test"), propagation=policy)

        async def nothing_left():
            sets = (await c.client.list(ReplicaSet)).items
            machines = await c.machines()
            if policy == "Foreground":
                assert sets or not machines
            return not (sets or machines or await c.pods())

        await c.until(nothing_left)
