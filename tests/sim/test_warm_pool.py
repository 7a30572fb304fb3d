"""Warm pools, as their users see them."""

import asyncio

import pytest
from lightkube.models.core_v1 import Pod, ResourceQuota, Service
from lightkube.models.policy_v1 import PodDisruptionBudget as Budget
from tests.sim.cluster import Faults, cluster, replica_set
from tests.sim.drains import allows, budget
from tests.sim.test_endpoints import addressed, readiness_of_pods, service
from tests.sim.warm_pools import (
    POOL,
    boot,
    members,
    pool_of,
    spares,
    uids,
    until_members,
    until_spares,
    warm_pool,
)

from corral.api.errors import InternalError
from corral.api.kinds.corral.warm_pool import (
    FROM_WARM_POOL,
    WARM_POOL_LABEL,
    VirtualMachineWarmPool as WarmPool,
)
from corral.api.kinds.kubevirt.replicaset import VirtualMachineInstanceReplicaSet as ReplicaSet
from corral.api.kinds.vmi.vmi import VirtualMachineInstance as Machine
from corral.api.object import Key
from corral.node.hypervisor import Change
from corral.reconcile.objects import controller_uid, is_being_deleted
from corral.reconcile.spares import Spares

pytestmark = pytest.mark.looptime

SET = Key("default", "test")
AT_ONCE = 2.0
MISSES = "corral_warm_pool_misses_total"


async def with_spares(c, replicas=2, *, spares=2, **spec):
    """A set and a warm pool of it, all ready."""
    await c.client.create(ReplicaSet, replica_set("test", replicas))
    await c.client.create(WarmPool, warm_pool(spares, **spec))
    await until_members(c, replicas)
    await until_spares(c, spares)


async def condition(c):
    (ready,) = (await pool_of(c)).status.conditions
    return ready.status, ready.reason


async def test_a_pool_keeps_ready_spares_that_nothing_of_the_set_selects():
    async with cluster() as c:
        await with_spares(c)
        assert len(await members(c)) == 2
        for spare in await spares(c):
            assert spare.metadata.name.startswith("test")
            assert spare.metadata.labels.get("app") is None
            assert controller_uid(spare) == (await pool_of(c)).metadata.uid
        labelled = (await c.client.list(Pod, "default", labels="corral.dev/warm-pool=spares")).items
        assert len(labelled) == 2
        assert not any("app" in pod.metadata.labels for pod in labelled)
        assert (await c.replica_set("test")).status.replicas == 2
        assert await condition(c) == ("True", "SparesReady")
        status = (await pool_of(c)).status
        assert (status.label_selector, status.observed_generation, status.claimed_replicas) == (
            "corral.dev/warm-pool=spares",
            1,
            0,
        )


async def test_a_set_replaces_a_deleted_member_by_a_spare():
    async with cluster() as c:
        await with_spares(c)
        before = uids(await spares(c))
        gone = (await members(c))[0]
        await c.client.delete(Machine, gone.key)
        await until_members(c, 2, AT_ONCE)
        (adopted,) = [vmi for vmi in await members(c) if vmi.metadata.uid in before]
        assert adopted.metadata.labels["app"] == "test"
        assert WARM_POOL_LABEL not in adopted.metadata.labels
        assert adopted.metadata.annotations[FROM_WARM_POOL] == "spares"
        pods = (await c.client.list(Pod, "default", labels="app=test")).items
        assert len(pods) == 2
        assert not any(WARM_POOL_LABEL in pod.metadata.labels for pod in pods)
        await until_spares(c, 2)
        assert (await pool_of(c)).status.claimed_replicas == 1
        said = {(event.reason, event.message) for event in await c.events("test")}
        name = adopted.metadata.name
        adoption = f"Adopted virtual machine {name} of warm pool spares"
        assert ("SuccessfulAdopt", adoption) in said
        said = {(event.reason, event.message) for event in await c.events("spares")}
        assert ("HandedOut", f"Handed out {name} to {ReplicaSet.kind} test") in said
        assert len([reason for reason, _ in said if reason == "SuccessfulCreate"]) == 3


async def test_a_set_that_grows_adopts_all_spares_before_it_creates():
    async with cluster() as c:
        await with_spares(c, 3, spares=5)
        before = uids(await c.machines("default"))
        await c.scale("test", 8)
        await until_members(c, 8, AT_ONCE)
        assert uids(await members(c)) == before
        await c.scale("test", 14)
        await until_spares(c, 5)
        await until_members(c, 14)


async def test_more_members_than_spares_are_created():
    async with cluster() as c:
        await with_spares(c, 1, spares=2)
        labels = {"namespace": "default", "name": "spares"}
        before = uids(await c.machines("default"))
        misses = await c.metrics()
        await c.scale("test", 5)
        await until_members(c, 5)
        await until_spares(c, 2)
        assert before < uids(await members(c))
        metrics = await c.metrics()
        assert metrics.value(MISSES, **labels) == 2 + sum(
            sample.value for sample in misses.samples if sample.name == MISSES
        )
        assert metrics.value("corral_warm_pool_refills_total", **labels) == 4
        assert metrics.value("corral_warm_pool_spares_ready", **labels) == 2
        handed_out = {**labels, "kind": ReplicaSet.kind}
        assert metrics.value("corral_warm_pool_hand_outs_total", **handed_out) == 2


async def test_a_service_selects_a_spare_once_it_is_handed_out():
    async with addressed() as c:
        await with_spares(c)
        await c.client.create(Service, service())

        async def serves_members():
            served = await readiness_of_pods(c)
            found = {f"virt-launcher-{vmi.metadata.name}" for vmi in await members(c)}
            return len(served) == 2 and {pod.rpartition("-")[0] for pod in served} == found

        await c.until(serves_members)
        before = await readiness_of_pods(c)
        await c.client.delete(Machine, (await members(c))[0].key)

        async def another_serves():
            served = await readiness_of_pods(c)
            return len(served) == 2 and served.keys() != before.keys() and all(served.values())

        await c.until(another_serves, AT_ONCE)


async def test_a_changed_template_drains_spares_and_changed_labels_do_not():
    async with cluster() as c:
        await with_spares(c)
        before = uids(await spares(c))
        labels = {"metadata": {"labels": {"tier": "front"}}}
        await c.client.patch(ReplicaSet, SET, {"spec": {"template": labels}})
        await asyncio.sleep(5)
        assert uids(await spares(c)) == before
        change = {"spec": {"terminationGracePeriodSeconds": 1}}
        await c.client.patch(ReplicaSet, SET, {"spec": {"template": change}})

        async def are_replaced():
            now = await spares(c)
            return len(now) == 2 and not uids(now) & before

        await c.until(are_replaced, 10)
        await until_spares(c, 2)
        assert {vmi.spec.termination_grace_period_seconds for vmi in await spares(c)} == {1}
        await c.scale("test", 3)
        await until_members(c, 3)
        (adopted,) = [vmi for vmi in await members(c) if FROM_WARM_POOL in vmi.metadata.annotations]
        assert adopted.metadata.labels["tier"] == "front"


async def test_the_spares_of_a_deleted_set_go_and_come_back_with_it():
    async with cluster() as c:
        await with_spares(c)
        await c.client.delete(ReplicaSet, SET)

        async def are_gone():
            return not await c.machines("default")

        await c.until(are_gone)
        assert await condition(c) == ("False", "TargetNotFound")
        assert "TargetNotFound" in {event.reason for event in await c.events("spares")}
        await c.client.create(ReplicaSet, replica_set("test", 1))
        await until_spares(c, 2)
        assert await condition(c) == ("True", "SparesReady")


async def test_a_deleted_pool_takes_its_spares_along_and_no_machine_that_it_handed_out():
    async with cluster() as c:
        await with_spares(c, 1)
        await c.scale("test", 2)
        await until_members(c, 2, AT_ONCE)
        kept = uids(await members(c))
        await c.client.delete(WarmPool, POOL)

        async def are_gone():
            return len(await c.machines("default")) == 2

        await c.until(are_gone)
        assert uids(await members(c)) == kept
        await until_members(c, 2)


async def test_a_new_pool_adopts_the_spares_that_one_of_its_name_has_left_behind():
    async with cluster() as c:
        await with_spares(c)
        before = uids(await spares(c))
        await c.client.delete(WarmPool, POOL, propagation="Orphan")

        async def are_orphans():
            return not any(controller_uid(vmi) for vmi in await spares(c))

        await c.until(are_orphans)
        await c.client.create(WarmPool, warm_pool(2))
        await until_spares(c, 2, AT_ONCE)
        assert uids(await spares(c)) == before


async def test_a_machine_that_somebody_labels_as_a_spare_stays_theirs():
    async with cluster() as c:
        await with_spares(c, spares=1)
        template = replica_set()["spec"]["template"]["spec"]
        metadata = {"name": "mine", "namespace": "default", "labels": {WARM_POOL_LABEL: "spares"}}
        await c.client.create(Machine, {"metadata": metadata, "spec": template})
        await asyncio.sleep(30)
        mine = await c.client.get(Machine, "mine", "default")
        assert not mine.metadata.owner_references
        assert not is_being_deleted(mine)


async def test_a_spare_without_its_label_is_released_and_replaced():
    async with cluster() as c:
        await with_spares(c)
        (freed, _) = await spares(c)
        label = {"metadata": {"labels": {WARM_POOL_LABEL: None}}}
        await c.client.patch(Machine, freed.key, label)
        await until_spares(c, 2)
        found = await c.client.get(Machine, freed.metadata.name, "default")
        assert not found.metadata.owner_references
        assert found.status.phase == "Running"


async def test_a_pool_of_its_own_template_scales():
    async with cluster() as c:
        template = replica_set()["spec"]["template"]
        await c.client.create(WarmPool, warm_pool(1, template=template))
        await until_spares(c, 1)
        assert all(vmi.metadata.name.startswith("spares-") for vmi in await spares(c))
        for replicas in (4, 2, 0):
            scale = {"spec": {"replicas": replicas}}
            await c.client.patch(WarmPool, POOL, scale, subresource="scale")
            await until_spares(c, replicas)


async def test_spares_that_are_too_old_are_replaced_one_at_a_time():
    async with cluster() as c:
        await with_spares(c, maxAge="600s")
        boot(c, boot_seconds=10)
        before = uids(await spares(c))
        fewest = 2

        async def are_replaced():
            nonlocal fewest
            status = (await pool_of(c)).status
            fewest = min(fewest, status.ready_replicas)
            return not uids(await spares(c)) & before and status.ready_replicas == 2

        await c.until(are_replaced, 700)
        assert fewest == 2
        assert asyncio.get_running_loop().time() >= 600
        said = {event.message.partition(": ")[2] for event in await c.events("spares")}
        assert "it is older than spec.maxAge" in said


@pytest.mark.parametrize("change", [Change.POWERED_OFF, Change.GONE])
async def test_a_spare_that_ends_is_replaced(change):
    async with cluster() as c:
        await with_spares(c)
        ended = (await spares(c))[0]
        c.end(ended, change)

        async def is_replaced():
            now = await spares(c)
            return len(now) == 2 and ended.metadata.uid not in uids(now)

        await c.until(is_replaced, 10)
        await until_spares(c, 2)


async def test_spares_that_fail_at_once_are_made_ever_more_slowly_and_the_pool_says_so():
    async with cluster() as c:
        boot(c, crashes=1.0, crash_seconds=0.1)
        await c.client.create(ReplicaSet, replica_set("test", 0))
        await c.client.create(WarmPool, warm_pool(1))

        async def says_so():
            return [each.reason for each in (await pool_of(c)).status.conditions] == ["BackOff"]

        await c.until(says_so, 600)
        assert "BackOff" in {event.reason for event in await c.events("spares")}
        boot(c)
        await until_spares(c, 1, 600)
        assert await condition(c) == ("True", "SparesReady")


async def test_a_quota_keeps_spares_from_being_made_until_it_allows_them():
    async with cluster() as c:
        quota = {"metadata": {"name": "q", "namespace": "default"}}
        hard = {"count/virtualmachineinstances.kubevirt.io": "2"}
        await c.client.create(ResourceQuota, {**quota, "spec": {"hard": hard}})
        await c.client.create(ReplicaSet, replica_set("test", 1))
        await until_members(c, 1)
        await c.client.create(WarmPool, warm_pool(3))

        async def is_refused():
            status = (await pool_of(c)).status
            return status.ready_replicas == 1 and [
                (each.reason, "exceeded quota" in each.message) for each in status.conditions
            ] == [("FailedCreate", True)]

        await c.until(is_refused)
        more = {"spec": {"hard": {**dict.fromkeys(hard, "9")}}}
        await c.client.patch(ResourceQuota, Key("default", "q"), more)
        await until_spares(c, 3, 30)


async def test_budgets_of_the_set_count_members_alone_and_one_of_spares_their_pool():
    async with cluster() as c:
        await with_spares(c, 4, spares=3)
        await c.client.create(Budget, budget(maxUnavailable=1))
        status = (await allows(c, 1)).status
        assert (status.expectedPods, status.currentHealthy) == (4, 4)
        document = budget(maxUnavailable=1)
        document["metadata"]["name"] = "of-spares"
        document["spec"]["selector"] = {"matchLabels": {WARM_POOL_LABEL: "spares"}}
        await c.client.create(Budget, document)

        async def counts_spares():
            status = (await c.client.get(Budget, "of-spares", "default")).status
            return status and (status.expectedPods, status.disruptionsAllowed) == (3, 1)

        await c.until(counts_spares)


async def test_a_restarted_manager_goes_on_where_the_last_one_was():
    async with cluster() as c:
        await with_spares(c, 2, spares=3)
        before = uids(await c.machines("default"))
        await c.crash_loops()
        await c.client.delete(Machine, (await members(c))[0].key)
        c.start_loops()
        await until_members(c, 2, AT_ONCE)
        assert uids(await members(c)) < before
        await until_spares(c, 3)
        assert (await pool_of(c)).status.claimed_replicas == 1


async def test_a_set_whose_spares_cannot_be_handed_out_creates_members(monkeypatch):
    async def refuse(*_args, **_options):
        raise InternalError("failed calling webhook")

    async with cluster() as c:
        await with_spares(c)
        monkeypatch.setattr(Spares, "hand_out", refuse)
        await c.scale("test", 4)
        await until_members(c, 4)
        assert len(await spares(c)) == 2
        assert "FailedAdopt" in {event.reason for event in await c.events("test")}


@pytest.mark.parametrize("seed", range(4))
async def test_no_excess_spare_is_made_however_late_the_cache_is(seed):
    faults = Faults(seed, delay=1.0, double=0.3)
    async with cluster(faults=faults) as c:
        await c.client.create(ReplicaSet, replica_set("test", 2))
        await c.client.create(WarmPool, warm_pool(5))
        most = 0

        async def converged():
            nonlocal most
            most = max(most, len(await c.machines()))
            return (await pool_of(c)).status.ready_replicas == 5

        await c.until(converged, 300)
        await until_members(c, 2)
        assert most == 7
