"""Whose machines are whose: sets and pools take what nobody manages, and nothing else."""

import asyncio

import pytest
from lightkube.models.apps_v1 import ControllerRevision
from lightkube.models.core_v1 import ConfigMap
from tests.sim.cluster import Faults, cluster, replica_set
from tests.sim.pools import IMAGE, Pools

from corral.api.errors import Invalid
from corral.api.kinds.kubevirt import pool_validation
from corral.api.kinds.kubevirt.pool import VirtualMachinePool as Pool
from corral.api.kinds.kubevirt.replicaset import VirtualMachineInstanceReplicaSet as ReplicaSet
from corral.api.kinds.vmi import admission
from corral.api.kinds.vmi.vmi import VirtualMachineInstance as Machine
from corral.api.object import Key
from corral.daemon.component_users import CONTROLLER
from corral.node.hypervisor import Change
from corral.reconcile.objects import controller_uid

pytestmark = pytest.mark.looptime

SET = Key("default", "test")


async def make_machines(c, count, labels, owners=()):
    """Machines that nobody made for a set."""
    spec = replica_set()["spec"]["template"]["spec"]
    for number in range(count):
        metadata = {"name": f"own{number}", "namespace": "default", "labels": labels}
        metadata["ownerReferences"] = list(owners)
        await c.client.create(Machine, {"metadata": metadata, "spec": spec})


async def uids(c):
    return {machine.metadata.uid for machine in await c.machines("default")}


# -------------------------------------------------------------------- selectors


@pytest.mark.parametrize("selector", [{}, {"matchLabels": {"app": "other"}}])
async def test_a_set_whose_selector_matches_everything_or_nothing_is_rejected(selector):
    document = replica_set()
    document["spec"]["selector"] = selector
    async with cluster() as c:
        with pytest.raises(Invalid, match="selector"):
            await c.client.create(ReplicaSet, document)
        await c.client.create(ReplicaSet, replica_set(replicas=0))
        with pytest.raises(Invalid, match="selector"):
            await c.client.patch(ReplicaSet, SET, [_replaced(selector)])


def _replaced(selector):
    return {"op": "replace", "path": "/spec/selector", "value": selector}


@pytest.mark.parametrize("selector", [{}, {"matchLabels": {"app": "other"}}])
async def test_a_stored_set_whose_selector_matches_everything_adopts_nothing(selector, monkeypatch):
    """Admission refuses such a set; one may have been stored before it did."""
    monkeypatch.setattr(admission, "check_selector", lambda *_: [])
    document = replica_set(replicas=1)
    document["spec"]["selector"] = selector
    async with cluster() as c:
        await make_machines(c, 3, {"app": "other"})
        before = await uids(c)
        await c.client.create(ReplicaSet, document)
        await asyncio.sleep(60)
        assert await uids(c) == before
        assert not any(controller_uid(machine) for machine in await c.machines())


async def test_a_stored_pool_whose_selector_matches_everything_creates_nothing(monkeypatch):
    monkeypatch.setattr(pool_validation, "check_selector", lambda *_: [])
    async with cluster() as c:
        web = Pools(c)
        await web.create(2, selector={})
        await asyncio.sleep(60)
        assert await web.names() == set()


# --------------------------------------------------------- adoption and release


async def test_an_adopted_vmi_keeps_its_other_owners():
    async with cluster() as c:
        metadata = {"name": "mine", "namespace": "default"}
        mine = await c.client.create(ConfigMap, {"metadata": metadata})
        owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "mine"}
        await make_machines(c, 1, {"app": "test"}, [{**owner, "uid": mine.metadata.uid}])
        await c.client.create(ReplicaSet, replica_set(replicas=1))
        await c.until_ready("test", 1)
        (machine,) = await c.machines()
        assert [each.name for each in machine.metadata.owner_references] == ["mine", "test"]
        await c.client.patch(Machine, machine.key, {"metadata": {"labels": {"app": "free"}}})

        async def is_released():
            found = await c.client.get(Machine, machine.metadata.name, "default")
            return [each.name for each in found.metadata.owner_references] == ["mine"]

        await c.until(is_released)


async def test_an_orphan_created_later_is_adopted_at_once_and_counts():
    async with cluster() as c:
        await c.client.create(ReplicaSet, replica_set(replicas=2))
        await c.until_ready("test", 2)
        await make_machines(c, 1, {"app": "test"})

        async def has_been_too_many():
            return any(event.reason == "SuccessfulDelete" for event in await c.events("test"))

        await c.until(has_been_too_many, 5)
        await c.until_ready("test", 2, 5)


async def test_a_set_with_its_desired_replicas_writes_nothing():
    async with cluster() as c:
        await c.client.create(ReplicaSet, replica_set(replicas=1))
        await c.until_ready("test", 1)
        written = []
        handle = c.server.handle

        async def listening(request):
            if request.method != "GET" and "replicasets/test" in request.path:
                written.append(request.path)
            return await handle(request)

        c.server.handle = listening
        await c.crash_loops()
        c.start_loops()  # they go through it from now on, and look at everything
        await asyncio.sleep(30)
        assert written == []


@pytest.mark.parametrize("seed", range(6))
async def test_two_sets_with_one_selector_keep_their_own_vmis(seed):
    """Their caches lag differently: each sees orphans that the other has taken already."""
    faults = Faults(seed, delay=0.5, double=0.3, until=40)
    first, second = replica_set("first", 4), replica_set("second", 4)
    second["spec"]["selector"] = first["spec"]["selector"]
    second["spec"]["template"]["metadata"] = first["spec"]["template"]["metadata"]
    async with cluster(faults=faults) as c:
        await make_machines(c, 4, first["spec"]["selector"]["matchLabels"])
        before = await uids(c)
        await asyncio.gather(*(c.client.create(ReplicaSet, each) for each in (first, second)))
        masters = {}

        async def converged():
            for machine in await c.machines():
                masters.setdefault(machine.metadata.uid, set()).add(controller_uid(machine))
            ready = [(await c.replica_set(n)).status.ready_replicas for n in ("first", "second")]
            return ready == [4, 4]

        await c.until(converged, 300)
        assert before <= await uids(c)
        assert len(await uids(c)) == 8
        assert all(len(each - {""}) == 1 for each in masters.values())


# ------------------------------------------------------------ names given again


class Held:
    """Keeps the controllers' deletions of machines waiting until they may go on."""

    def __init__(self, c) -> None:
        self.came, self.may_go = asyncio.Event(), asyncio.Event()
        self._handle = c.server.handle
        c.server.handle = self

    async def __call__(self, request):
        ours = request.user == CONTROLLER and request.method == "DELETE"
        if ours and "/virtualmachineinstances/" in request.path:
            self.came.set()
            await self.may_go.wait()
        return await self._handle(request)


async def has_no_set(c):
    machines = await c.machines()
    owned = any(machine.metadata.owner_references for machine in machines)
    return not owned and not (await c.client.list(ReplicaSet)).items


async def test_a_recreated_set_does_not_wait_for_expectations_of_the_old_one():
    async with cluster() as c:
        await c.client.create(ReplicaSet, replica_set(replicas=8))
        await c.until_ready("test", 8)
        held = Held(c)
        await c.crash_loops()
        c.start_loops()  # they go through it from now on
        await c.scale("test", 4)
        async with asyncio.timeout(30):
            await held.came.wait()
        await c.client.delete(ReplicaSet, SET, propagation="Orphan")
        await c.until(lambda: has_no_set(c))
        await c.client.create(ReplicaSet, replica_set(replicas=8))
        held.may_go.set()
        await c.until_ready("test", 8, 30)


async def test_a_recreated_set_is_not_delayed_by_the_backoff_of_the_old_one():
    async with cluster() as c:
        await c.client.create(ReplicaSet, replica_set(replicas=1))

        async def is_held_back():
            for machine in await c.machines():
                if machine.status.phase == "Running":
                    c.end(machine, Change.GONE)
            return bool((await c.replica_set("test")).status.conditions)

        await c.until(is_held_back)
        await c.client.delete(ReplicaSet, SET)
        await c.until(lambda: has_no_set(c))
        await c.client.create(ReplicaSet, replica_set(replicas=1))
        await c.until_ready("test", 1, 5)
        assert not (await c.replica_set("test")).status.conditions


@pytest.mark.parametrize("image", [IMAGE, "cirros:2"])
async def test_a_recreated_pool_creates_its_vms(image):
    """The revisions of the earlier one are there; they hold the same spec or another."""
    async with cluster() as c:
        web = Pools(c)
        await web.create(2)
        await web.until_ready(2)
        await c.client.delete(Pool, web.key, propagation="Orphan")

        async def is_gone():
            return not (await c.client.list(Pool)).items

        await c.until(is_gone)
        await web.create(2, image=image)
        await web.until_ready(2, 30)
        assert await web.names() == {"web-0", "web-1", "web-2", "web-3"}
        revision = await c.client.get(ControllerRevision, "web-1", "default")
        assert controller_uid(revision) == (await web.get()).metadata.uid
        spec = revision.data["virtualMachineTemplate"]["spec"]["template"]["spec"]
        assert spec["volumes"][0]["containerDisk"]["image"] == image


async def test_a_foreign_revision_is_reported_and_its_deletion_triggers_a_sync():
    async with cluster() as c:
        web = Pools(c)
        metadata = {"name": "rival", "namespace": "default"}
        rival = await c.client.create(ConfigMap, {"metadata": metadata})
        owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "rival", "controller": True}
        metadata = {"name": "web-1", "namespace": "default"}
        metadata["ownerReferences"] = [{**owner, "uid": rival.metadata.uid}]
        revision = {"metadata": metadata, "data": {}, "revision": 1}
        await c.client.create(ControllerRevision, revision)
        await web.create(1)
        await asyncio.sleep(500)
        [condition] = (await web.get()).status.conditions
        assert "ControllerRevision web-1 belongs to ConfigMap rival" in condition.message
        await c.client.delete(ControllerRevision, Key("default", "web-1"))
        await web.until_ready(1, 10)
        assert (await web.get()).status.conditions == []
