"""Quotas: their status, the conditions of VMIs over quota, and the repair of both."""

import asyncio

import pytest
from lightkube.models.core_v1 import ConfigMap, LimitRange, Namespace, Pod, ResourceQuota
from structlog.testing import capture_logs
from tests.sim.cluster import Faults, cluster, replica_set
from tests.sim.pools import pool
from tests.sim.test_virtual_machine import vm

from corral.api.errors import Forbidden
from corral.api.kinds.corral.checkpoint import VirtualMachineCheckpoint as Checkpoint
from corral.api.kinds.kubevirt.pool import VirtualMachinePool as Pool
from corral.api.kinds.kubevirt.replicaset import VirtualMachineInstanceReplicaSet as ReplicaSet
from corral.api.kinds.kubevirt.virtualmachine import VirtualMachine
from corral.api.kinds.vmi.vmi import VirtualMachineInstance as Machine
from corral.api.object import Key
from corral.api.quantity import bytes_of
from corral.client.client import Client
from corral.cluster import resource_quota as quota_loop
from corral.cluster.resource_quota import Quotas
from corral.reconcile.events import COMBINED
from corral.reconcile.objects import key_of, version_of
from corral.reconcile.workqueue import MAX_RETRIED_NOW

pytestmark = pytest.mark.looptime
QUOTA = Key("default", "q")


async def limit(c, **spec):
    document = {"metadata": QUOTA._asdict(), "spec": spec}
    await c.client.create(ResourceQuota, document)


async def used(c):
    quota = await c.client.get(ResourceQuota, "q", "default")
    return quota.status.used if quota.status is not None else None


async def condition(c, name, of=Machine, machine=None):
    found = (await c.client.list(of, "default")).items if machine is None else [machine]
    conditions = [each for one in found for each in one.status.conditions if each.type == name]
    return conditions[0] if conditions else None


async def test_the_status_of_a_quota_has_the_usage():
    async with cluster() as c:
        await limit(c, hard={"pods": "5", "requests.cpu": "1", "count/configmaps": "3"})

        async def is_reported(**expected):
            return await used(c) == expected

        nothing = {"pods": "0", "requests.cpu": "0", "count/configmaps": "0"}
        await c.until(lambda: is_reported(**nothing), 10)
        await c.client.create(ReplicaSet, replica_set(replicas=2))
        await c.client.create(ConfigMap, {"metadata": {"name": "a", "namespace": "default"}})
        both = {"pods": "2", "requests.cpu": "212m", "count/configmaps": "1"}
        await c.until(lambda: is_reported(**both), 30)
        await c.scale("test", 1)
        one = {"pods": "1", "requests.cpu": "106m", "count/configmaps": "1"}
        await c.until(lambda: is_reported(**one), 120)
        change = {"spec": {"hard": {"requests.cpu": None, "services": "1"}}}
        await c.client.patch(ResourceQuota, QUOTA, change)
        other = {"pods": "1", "count/configmaps": "1", "services": "0"}
        await c.until(lambda: is_reported(**other), 10)


async def test_a_pod_with_an_invalid_deletion_time_counts_and_breaks_no_other():
    """Such a pod may be stored from before graces were bounded; here its node has just gone."""
    async with cluster(nodes=2) as c:
        c.kill_agent("node1")
        broken = {
            "metadata": {"name": "broken", "namespace": "default"},
            "spec": {"containers": [{"name": "main", "image": "demo"}], "nodeName": "node1"},
        }
        await c.client.create(Pod, broken)
        key = Key("default", "broken")
        stored = c.server.store.latest("pods", key).document()
        stored["metadata"] |= {
            "deletionTimestamp": "8361-01-01T00:00:00Z",
            "deletionGracePeriodSeconds": 200_000_000_000,
        }
        await c.server.store.write("pods", key, stored)
        await limit(c, hard={"pods": "3"})
        await c.client.create(ReplicaSet, replica_set(replicas=2))

        async def is_counted():
            both_run = (await c.replica_set("test")).status.ready_replicas == 2
            return both_run and await used(c) == {"pods": "3"}

        await c.until(is_counted, 30)


async def test_a_quota_is_synced_only_on_changes_in_its_namespace(monkeypatch):
    looked, read = [], set()

    async def reconcile(loop, key, real=Quotas.reconcile):
        looked.append(key)
        return await real(loop, key)

    def version(item):
        read.add(key_of(item).namespace)
        return version_of(item)

    monkeypatch.setattr(Quotas, "reconcile", reconcile)
    monkeypatch.setattr(quota_loop, "version_of", version)
    async with cluster() as c:
        await c.client.create(Namespace, {"metadata": {"name": "other"}})
        for number in range(3):
            for space in ("other", "default"):
                metadata = {"name": f"m{number}", "namespace": space}
                await c.client.create(ConfigMap, {"metadata": metadata})
        await limit(c, hard={"count/configmaps": "9"})
        await asyncio.sleep(30)
        assert looked == [QUOTA]
        assert read == {"default"}
        await c.client.delete(ConfigMap, Key("default", "m0"))
        await c.client.delete(ConfigMap, Key("other", "m0"))
        await asyncio.sleep(30)
        assert looked == [QUOTA] * 2
        truth = await used(c)
        wrong = {"status": {"used": {"count/configmaps": "7"}}}
        await c.client.patch(ResourceQuota, QUOTA, wrong, subresource="status")
        await asyncio.sleep(30)
        assert await used(c) == truth
        assert looked == [QUOTA] * 3


async def test_a_vmi_over_quota_reports_it_and_runs_once_there_is_room():
    async with cluster() as c:
        await limit(c, hard={"pods": "1"})
        await c.client.create(ReplicaSet, replica_set(replicas=3))

        async def are_refused():
            pending = [each for each in await c.machines() if each.status.phase == "Pending"]
            return len(pending) == 2 and all(
                any(reported.type == "Synchronized" for reported in each.status.conditions)
                for each in pending
            )

        await c.until(are_refused, 30)
        waiting = next(each for each in await c.machines() if each.status.phase == "Pending")
        reported = await condition(c, "Synchronized", machine=waiting)
        assert (reported.status, reported.reason) == ("False", "FailedCreate")
        pod = reported.message.split('"')[1]
        assert reported.message == (
            f'failed to create virtual machine pod: pods "{pod}" is forbidden: exceeded quota: q, '
            "requested: pods=1, used: pods=1, limited: pods=1"
        )
        ready = await condition(c, "Ready", machine=waiting)
        assert (ready.status, ready.reason) == ("False", "PodNotExists")

        async def is_reported():
            events = await c.events(waiting.metadata.name)
            return any("Error creating pod: pods" in event.message for event in events)

        await c.until(is_reported, 10)

        async def counts():
            status = (await c.replica_set("test")).status
            return (status.replicas, status.ready_replicas) == (3, 1)

        await c.until(counts, 10)
        await c.client.patch(ResourceQuota, QUOTA, {"spec": {"hard": {"pods": "2"}}})

        async def runs(count):
            return sum(each.status.phase == "Running" for each in await c.machines()) == count

        await c.until(lambda: runs(2), 10)
        await c.client.delete(ResourceQuota, QUOTA)
        await c.until_ready("test", 3, 10)
        assert await condition(c, "Synchronized") is None


async def test_of_many_waiting_vmis_a_few_retry_for_each_freed_place(monkeypatch):
    async with cluster() as c:
        await limit(c, hard={"pods": "5"})
        template = replica_set()["spec"]["template"]
        for number in range(60):
            metadata = {"name": f"m{number}", "namespace": "default"}
            await c.client.create(Machine, {"metadata": metadata, "spec": template["spec"]})
        await asyncio.sleep(300)
        refused = []
        real = Client.create

        async def create(client, view, document, **more):
            try:
                return await real(client, view, document, **more)
            except Forbidden:
                refused.append(document)
                raise

        monkeypatch.setattr(Client, "create", create)

        async def running():
            return [each for each in await c.machines() if each.status.phase == "Running"]

        first = await running()
        assert len(first) == 5
        for machine in first[:3]:
            await c.client.delete(Machine, machine.key)
        await asyncio.sleep(20)
        now = {each.metadata.name for each in await running()}
        assert len(now) == 5
        assert len(now - {each.metadata.name for each in first}) == 3
        assert len(refused) <= 3 * 2 * MAX_RETRIED_NOW
        await c.client.delete(ResourceQuota, QUOTA)
        await asyncio.sleep(20)
        assert len(await running()) == 57


async def test_a_set_over_quota_reports_it_and_creates_the_vmis_later():
    async with cluster() as c:
        counted = "count/virtualmachineinstances.kubevirt.io"
        await limit(c, hard={counted: "2"})
        await c.client.create(ReplicaSet, replica_set(replicas=3))

        async def is_refused():
            return await condition(c, "ReplicaFailure", of=ReplicaSet) is not None

        await c.until(is_refused, 30)
        reported = await condition(c, "ReplicaFailure", of=ReplicaSet)
        assert (reported.status, reported.reason) == ("True", "FailedCreate")
        assert f"exceeded quota: q, requested: {counted}=1, used: {counted}=" in reported.message
        events = [event.message for event in await c.events("test") if event.type == "Warning"]
        assert any("Error creating virtual machine instance:" in text for text in events)
        await c.client.patch(ResourceQuota, QUOTA, {"spec": {"hard": {counted: "3"}}})
        await c.until_ready("test", 3, 20)

        async def is_repaired():
            return await condition(c, "ReplicaFailure", of=ReplicaSet) is None

        await c.until(is_repaired, 20)


async def test_checkpoints_are_counted_and_those_beyond_the_quota_refused():
    async with cluster() as c:
        counted = "count/virtualmachinecheckpoints.corral.dev"
        await limit(c, hard={counted: "1"})
        document = {"metadata": {"namespace": "default"}, "spec": {"source": {"name": "vm"}}}
        named = [{**document, "metadata": {"name": name, **document["metadata"]}} for name in "ab"]
        await c.client.create(Checkpoint, named[0])
        with pytest.raises(Forbidden, match=f"exceeded quota: q, requested: {counted}=1, used"):
            await c.client.create(Checkpoint, named[1])

        async def is_counted():
            return await used(c) == {counted: "1"}

        await c.until(is_counted, 30)
        await c.client.delete(Checkpoint, Key("default", "a"))

        async def is_free():
            return await used(c) == {counted: "0"}

        await c.until(is_free, 30)
        await c.client.create(Checkpoint, named[1])


async def test_a_repeated_rejection_is_logged_once_and_its_events_are_counted():
    """Each try of a set makes up a name, which is in its event: they are combined, not the same."""
    async with cluster() as c:
        machines, vms = (
            f"count/{plural}.kubevirt.io"
            for plural in ("virtualmachineinstances", "virtualmachines")
        )
        await limit(c, hard={machines: "0", vms: "0"})
        with capture_logs() as logged:
            await c.client.create(ReplicaSet, replica_set("set", replicas=1))
            await c.client.create(Pool, pool("pool", replicas=1))
            await asyncio.sleep(7200)
        loud = [each for each in logged if each["log_level"] == "warning"]
        assert sorted(each["controller"] for each in loud) == ["pool", "replicaset"]
        of_set = [each for each in await c.events("set") if each.reason == "FailedCreate"]
        of_pool = [each for each in await c.events("pool") if each.reason == "FailedCreate"]
        (counted,) = of_pool
        assert counted.count > 15
        assert sum(each.count for each in of_set) > 15
        (combined,) = [each for each in of_set if each.message.startswith(COMBINED)]
        assert combined.count > 5


async def test_a_finished_vmi_makes_room_for_its_replacement():
    """It counts until it is deleted: a set that waited with that for the next would never heal."""
    async with cluster() as c:
        await limit(c, hard={"count/virtualmachineinstances.kubevirt.io": "2"})
        await c.client.create(ReplicaSet, replica_set(replicas=2))
        await c.until_ready("test", 2, 30)
        ended = (await c.client.list(Machine, "default")).items[0]
        c.guest(ended).crash()

        async def is_replaced():
            names = [each.metadata.name for each in (await c.client.list(Machine)).items]
            return ended.metadata.name not in names and len(names) == 2

        await c.until(is_replaced, 60)
        await c.until_ready("test", 2, 30)


async def test_a_deleted_vmi_makes_room_for_a_waiting_one():
    async with cluster() as c:
        await limit(c, hard={"pods": "2"})
        await c.client.create(ReplicaSet, replica_set("first", replicas=2))
        await c.until(lambda: _is(used(c), {"pods": "2"}), 30)
        await c.client.create(ReplicaSet, replica_set("second", replicas=1))
        await c.scale("first", 1)

        async def runs():
            return (await c.replica_set("second")).status.ready_replicas == 1

        await c.until(runs, 120)


async def _is(found, expected):
    return await found == expected


async def test_a_vm_over_quota_is_starting_until_there_is_room():
    async with cluster() as c:
        await limit(c, hard={"pods": "0"})
        await c.client.create(VirtualMachine, vm())

        async def is_reported():
            return await condition(c, "Synchronized", of=VirtualMachine) is not None

        await c.until(is_reported, 30)
        (one,) = (await c.client.list(VirtualMachine, "default")).items
        assert one.status.printable_status == "Starting"
        reported = await condition(c, "Synchronized", of=VirtualMachine)
        assert "exceeded quota: q" in reported.message
        await c.client.delete(ResourceQuota, QUOTA)

        async def runs():
            (one,) = (await c.client.list(VirtualMachine, "default")).items
            return one.status.printable_status == "Running"

        await c.until(runs, 10)


async def test_vmis_get_limits_if_a_quota_requires_them():
    async with cluster() as c:
        ratio = {"alpha.kubevirt.io/auto-memory-limits-ratio": "1.5"}
        await c.client.patch(Namespace, Key("", "default"), {"metadata": {"labels": ratio}})
        await limit(c, hard={"limits.cpu": "3", "limits.memory": "1Gi"})
        await c.client.create(ReplicaSet, replica_set(replicas=1))
        await c.until_ready("test", 1, 30)
        (pod,) = await c.pods("default")
        compute = pod.spec.containers[0].resources
        assert compute.limits["cpu"] == "1"
        requested, most = (each["memory"] for each in (compute.requests, compute.limits))
        assert bytes_of(most) == int(bytes_of(requested) * 1.5)


async def test_vmis_get_the_limit_range_of_their_namespace():
    async with cluster() as c:
        of = {"type": "Container", "max": {"memory": "32Mi"}}
        document = {"metadata": {"name": "r", "namespace": "default"}, "spec": {"limits": [of]}}
        await c.client.create(LimitRange, document)
        await c.client.create(ReplicaSet, replica_set(replicas=1))

        async def is_refused():
            return await condition(c, "Synchronized") is not None

        await c.until(is_refused, 30)
        reported = await condition(c, "Synchronized")
        assert "maximum memory usage per Container is 32Mi, but" in reported.message
        assert not (await c.client.list(Pod, "default")).items
        await c.client.delete(LimitRange, Key("default", "r"))
        await c.until_ready("test", 1, 10)


async def test_quotas_are_correct_after_a_crash_of_the_controllers():
    async with cluster() as c:
        await limit(c, hard={"pods": "2"})
        await c.client.create(ReplicaSet, replica_set(replicas=3))
        await c.until(lambda: _is(used(c), {"pods": "2"}), 30)
        await c.crash_loops()
        await c.client.delete(ReplicaSet, Key("default", "test"))
        c.start_loops()
        await c.until(lambda: _is(used(c), {"pods": "0"}), 240)


@pytest.mark.parametrize("seed", range(4))
async def test_a_quota_is_kept_and_used_up_in_spite_of_faults(seed):
    """Answers get lost, watches break, the loops begin anew: no place is given twice, or lost."""
    faults = Faults(seed, fail=0.1, lose_answer=0.1, delay=0.2, cut=0.05, double=0.05)
    async with cluster(faults=faults) as c:
        await limit(c, hard={"pods": "3"})
        await c.client.create(ReplicaSet, replica_set(replicas=5))

        async def holds(count):
            pods = await c.pods("default")
            assert len(pods) <= count
            return sum(each.status.phase == "Running" for each in pods) == count

        await c.until(lambda: holds(3), 120)
        await c.crash_loops()
        c.start_loops()
        await c.client.patch(ResourceQuota, QUOTA, {"spec": {"hard": {"pods": "4"}}})
        await c.until(lambda: holds(4), 240)
        await c.until(lambda: _is(used(c), {"pods": "4"}), 60)


async def test_a_vm_reports_the_rejection_of_its_vmi():
    async with cluster() as c:
        counted = "count/virtualmachineinstances.kubevirt.io"
        await limit(c, hard={counted: "0"})
        await c.client.create(VirtualMachine, vm())

        async def fails():
            return await condition(c, "Failure", of=VirtualMachine) is not None

        await c.until(fails, 30)
        reported = await condition(c, "Failure", of=VirtualMachine)
        assert reported.reason == "FailedCreate"
        assert "Failure while starting VMI: " in reported.message
        assert "exceeded quota: q" in reported.message
        await c.client.delete(ResourceQuota, QUOTA)

        async def runs():
            (one,) = (await c.client.list(VirtualMachine, "default")).items
            return one.status.printable_status == "Running" and not await fails()

        await c.until(runs, 10)


async def test_a_pool_over_quota_reports_it_and_grows_later():
    async with cluster() as c:
        counted = "count/virtualmachines.kubevirt.io"
        await limit(c, hard={counted: "1"})
        await c.client.create(Pool, pool(replicas=3))

        async def is_refused():
            reported = await condition(c, "ReplicaFailure", of=Pool)
            return reported is not None and "exceeded quota: q" in reported.message

        await c.until(is_refused, 30)
        await c.client.patch(ResourceQuota, QUOTA, {"spec": {"hard": {counted: "3"}}})

        async def is_whole():
            found = await c.client.get(Pool, "web", "default")
            return found.status.ready_replicas == 3 and not await is_refused()

        await c.until(is_whole, 30)
