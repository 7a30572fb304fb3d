"""State of VirtualMachines that leave a pool."""

import asyncio

import pytest
from lightkube.models.core_v1 import PersistentVolumeClaim
from tests.sim.cluster import cluster
from tests.sim.pools import STORAGE, Pools

from corral.api.errors import NotFound
from corral.api.kinds.cdi.datavolume import DataVolume
from corral.api.kinds.kubevirt.pool import VirtualMachinePool as Pool
from corral.controllers.pool.scale_plan import is_marked
from corral.reconcile.objects import key_of, uid_of

pytestmark = pytest.mark.looptime

DISK = {"name": "root", "dataVolume": {"name": "disk"}}
TEMPLATE = {
    "metadata": {"name": "disk"},
    "spec": {"source": {"blank": {}}, "storage": {"resources": {"requests": {"storage": "1Gi"}}}},
}
HALTED = {"runStrategy": "Halted", "dataVolumeTemplates": [TEMPLATE]}
"""VirtualMachines that have disks, but need not run: what becomes of the disks is the question."""


def scale_in(name, state):
    return {name: {"statePreservation": state}} if state else {name: {}}


async def disks(c) -> dict[str, str]:
    """Uids of all DataVolumes and claims by kind and name."""
    found = {}
    for view in (DataVolume, PersistentVolumeClaim):
        for one in (await c.client.list(view, "default")).items:
            found[f"{view.__name__}/{key_of(one).name}"] = uid_of(one)
    return found


async def owners(c, name) -> list[str]:
    volume = await c.client.get(DataVolume, name, "default")
    return [owner.uid for owner in volume.metadata.owner_references]


async def are_there(c, count):
    return len(await disks(c)) == count


async def start(c, replicas=2, **fields) -> Pools:
    web = Pools(c)
    await web.create(replicas, vm=HALTED, spec={"volumes": [DISK]}, **fields)
    await c.until(lambda: are_there(c, 2 * replicas))
    await web.until_stable()
    return web


async def test_each_vm_has_its_own_disk():
    async with cluster() as c:
        web = await start(c)
        assert set(await disks(c)) == {
            "DataVolume/disk-0",
            "DataVolume/disk-1",
            "PersistentVolumeClaim/disk-0",
            "PersistentVolumeClaim/disk-1",
        }
        vm = await web.vm(1)
        assert vm.spec.template.spec.volumes[0].data_volume.name == "disk-1"
        assert await owners(c, "disk-1") == [vm.metadata.uid]


@pytest.mark.parametrize("state", [None, "Disabled"])
async def test_disks_are_deleted_with_their_vm_unless_state_is_preserved(state):
    async with cluster() as c:
        web = await start(c, scaleInStrategy=scale_in("proactive", state))
        await web.patch(replicas=0)
        await web.until_stable()
        assert await web.names() == set()
        assert await disks(c) == {}


async def test_preserved_disks_are_reused_under_their_ordinal():
    async with cluster() as c:
        web = await start(c, scaleInStrategy=scale_in("proactive", "Offline"))
        before = await disks(c)
        await web.patch(replicas=0)
        await web.until_stable()
        assert await web.names() == set()
        assert await disks(c) == before
        assert await owners(c, "disk-0") == []
        await web.patch(replicas=2)
        await web.until_stable()
        assert await disks(c) == before
        for number in range(2):
            assert await owners(c, f"disk-{number}") == [(await web.vm(number)).metadata.uid]


async def test_with_the_opportunistic_strategy_disks_of_vms_that_users_delete_are_preserved():
    async with cluster() as c:
        web = await start(c, scaleInStrategy=scale_in("opportunistic", "Offline"))
        before, old = await disks(c), await web.vm(1)
        await web.delete(1)
        await web.until_gone("web-1", old.metadata.uid)
        await web.until_stable()
        assert await disks(c) == before
        assert await owners(c, "disk-1") == [(await web.vm(1)).metadata.uid]


async def test_with_the_proactive_strategy_disks_of_vms_that_users_delete_are_not_preserved():
    async with cluster() as c:
        web = await start(c, scaleInStrategy=scale_in("proactive", "Offline"))
        before, old = await disks(c), await web.vm(1)
        await web.delete(1)
        await web.until_gone("web-1", old.metadata.uid)
        await c.until(lambda: are_there(c, 4))
        await web.until_stable()
        after = await disks(c)
        assert after["DataVolume/disk-0"] == before["DataVolume/disk-0"]
        assert after["DataVolume/disk-1"] != before["DataVolume/disk-1"]


async def test_a_deleted_pool_leaves_only_disks_that_were_preserved_before():
    async with cluster() as c:
        web = await start(c, scaleInStrategy=scale_in("proactive", "Offline"))
        await web.patch(replicas=1)
        await web.until_stable()
        [left] = await web.names()
        await c.client.delete(type(await web.get()), web.key)
        await web.until_stable()
        gone = left.replace("web", "disk")
        kept = {"disk-0": "disk-1", "disk-1": "disk-0"}[gone]
        assert set(await disks(c)) == {f"DataVolume/{kept}", f"PersistentVolumeClaim/{kept}"}


async def test_changed_disks_recreate_the_vms():
    async with cluster(stand_ins=STORAGE) as c:
        web = Pools(c)
        await web.create(
            2, vm={**HALTED, "runStrategy": "Always"}, spec={"volumes": [DISK]}, maxUnavailable=1
        )
        await web.until_ready(2)
        before, old = await disks(c), await web.vms()
        bigger = {**TEMPLATE["spec"], "storage": {"resources": {"requests": {"storage": "2Gi"}}}}
        await web.template({"spec": {"dataVolumeTemplates": [{**TEMPLATE, "spec": bigger}]}})
        await web.until_stable()
        await web.until_ready(2)
        after = await disks(c)
        assert set(after) == set(before)
        assert not set(after.values()) & set(before.values())
        new = await web.vms()
        assert set(new) == set(old)
        assert all(new[name].metadata.uid != old[name].metadata.uid for name in old)
        for name in ("disk-0", "disk-1"):
            claim = await c.client.get(PersistentVolumeClaim, name, "default")
            assert claim.spec.resources.requests["storage"] == "2Gi"


@pytest.mark.parametrize("moment", [0.0, 0.02, 0.06, 0.1, 0.15, 0.3])
async def test_disks_are_preserved_after_a_crash_of_the_manager_at_any_write(moment):
    async with cluster() as c:
        web = await start(c, scaleInStrategy=scale_in("proactive", "Offline"))
        before = await disks(c)
        await web.patch(replicas=0)
        await asyncio.sleep(moment)
        await c.crash_loops()
        await asyncio.sleep(5)
        c.start_loops()
        await web.until_stable()
        await c.until(lambda: _none(web))
        assert await disks(c) == before


async def _is_going(web):
    return any(vm.metadata.deletion_timestamp for vm in (await web.vms()).values())


async def _is_marked(web):
    return any(is_marked(vm) for vm in (await web.vms()).values())


@pytest.mark.parametrize("propagation", ["Background", "Foreground", "Orphan"])
@pytest.mark.parametrize("moment", [0, 0.001, 0.01, 0.03, 0.05, 0.1])
@pytest.mark.parametrize("reached", [_is_marked, _is_going])
async def test_disks_are_preserved_if_the_pool_is_deleted_right_after_a_scale_in(
    reached, moment, propagation
):
    async with cluster() as c:
        web = await start(c, scaleInStrategy=scale_in("proactive", "Offline"))
        before = await disks(c)
        await web.patch(replicas=0)
        await c.until(lambda: reached(web), every=0.001)
        await asyncio.sleep(moment)
        await c.client.delete(Pool, web.key, propagation=propagation)
        await web.until_stable()
        assert await disks(c) == before
        await web.until_finalizers_are_removed()
        with pytest.raises(NotFound):
            await web.get()


async def test_disks_of_a_vm_that_a_user_deleted_are_preserved_if_the_pool_is_deleted_next():
    async with cluster() as c:
        web = await start(c, scaleInStrategy=scale_in("opportunistic", "Offline"))
        await web.delete(1)
        await c.client.delete(Pool, web.key)
        await web.until_stable()
        assert await web.names() == set()
        assert set(await disks(c)) == {"DataVolume/disk-1", "PersistentVolumeClaim/disk-1"}


@pytest.mark.parametrize("change", [{"ownerReferences": None}, {"labels": {"pool": "other"}}])
async def test_disks_of_a_vm_detached_during_its_deletion_are_preserved(change):
    async with cluster() as c:
        web = await start(c, scaleInStrategy=scale_in("proactive", "Offline"))
        before = await disks(c)
        await web.patch(replicas=0)
        await c.until(lambda: _is_going(web), every=0.001)
        await web.change(0, change)
        await web.until_stable()
        assert await web.names() == set()
        assert await disks(c) == before


async def _none(web):
    return not await web.names()
