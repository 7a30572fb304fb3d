"""Pools whose size or template changes: what goes, what is made anew, and how many at a time."""

import asyncio

import msgspec
import pytest
from lightkube.models.apps_v1 import ControllerRevision
from lightkube.models.core_v1 import ConfigMap
from tests.sim.cluster import cluster
from tests.sim.pools import IMAGE, LABELS, Pools, pool

from corral.aio import Background
from corral.api.kinds.kubevirt.pool import REVISION_LABEL, VirtualMachinePool as Pool
from corral.api.kinds.kubevirt.virtualmachine import VirtualMachine
from corral.api.kinds.vmi.vmi import VirtualMachineInstance as Machine
from corral.api.object import Key
from corral.controllers.pool.availability import is_available
from corral.reconcile.context import ControllerContext

pytestmark = pytest.mark.looptime


# ------------------------------------------------------------------ shrinking


@pytest.mark.parametrize(
    ("policy", "left"),
    [
        ("AscendingOrder", {"web-2", "web-3"}),
        ("DescendingOrder", {"web-0", "web-1"}),
        ("Newest", {"web-0", "web-1"}),
        ("Oldest", {"web-2", "web-3"}),
    ],
)
async def test_scale_in_follows_the_pools_order(policy, left):
    async with cluster() as c:
        web = Pools(c)
        strategy = {"proactive": {"selectionPolicy": {"sortPolicy": policy}}}
        await web.create(0, scaleInStrategy=strategy)
        for replicas in range(1, 5):
            await web.patch(replicas=replicas)
            await web.until_ready(replicas)
            await asyncio.sleep(2)
        await web.patch(replicas=2)
        await web.until_stable()
        assert await web.names() == left


async def test_scale_in_deletes_only_vms_that_the_selectors_match():
    async with cluster() as c:
        web = Pools(c)
        selectors = {"labelSelector": {"matchLabels": {"shard": "b"}}}
        strategy = {"proactive": {"selectionPolicy": {"selectors": selectors}}}
        await web.create(3, scaleInStrategy=strategy)
        await web.until_ready(3)
        label = {"spec": {"template": {"metadata": {"labels": {"shard": "b"}}}}}
        await c.client.patch(VirtualMachine, Key("default", "web-1"), label)
        await web.patch(replicas=0)
        await web.until_stable()
        assert await web.names() == {"web-0", "web-2"}
        status = (await web.get()).status
        assert (status.replicas, status.conditions) == (2, [])


@pytest.mark.parametrize("strategy", ["opportunistic", "unmanaged"])
async def test_with_the_unmanaged_strategy_users_choose_which_vms_to_delete(strategy):
    async with cluster() as c:
        web = Pools(c)
        await web.create(3, scaleInStrategy={strategy: {}})
        await web.until_ready(3)
        await web.patch(replicas=1)
        await web.until_stable()
        assert await web.names() == {"web-0", "web-1", "web-2"}
        assert (await web.get()).status.replicas == 3
        await web.delete(1)
        await web.delete(0)
        await web.until_stable()
        assert await web.names() == {"web-2"}
        assert (await web.get()).status.replicas == 1


async def test_scale_out_during_a_scale_in_creates_no_excess_vms():
    async with cluster() as c:
        web = Pools(c)
        await web.create(5)
        await web.until_ready(5)
        await web.patch(replicas=3)
        await asyncio.sleep(0.06)
        await web.patch(replicas=4)
        await web.until_ready(4)
        await web.until_stable()
        assert len(await web.names()) == 4


# ------------------------------------------------------------------ disks of its own


DISK = {
    "spec": {
        "volumes": [
            {"name": "root", "containerDisk": {"image": IMAGE}},
            {"name": "data", "dataVolume": {"name": "data"}},
        ],
    },
    "vm": {
        "dataVolumeTemplates": [
            {
                "metadata": {"name": "data"},
                "spec": {
                    "source": {"blank": {}},
                    "storage": {"resources": {"requests": {"storage": "1Gi"}}},
                },
            }
        ]
    },
}


# ------------------------------------------------------------------ updates


async def test_a_changed_template_restarts_vmis_and_keeps_vms():
    async with cluster() as c:
        web = Pools(c)
        await web.create(3)
        await web.until_ready(3)
        vms, machines = await web.vms(), await web.machines()
        await web.image("cirros:2")
        await web.until_stable()
        await web.until_ready(3)
        now = await web.vms()
        for name, vm in now.items():
            assert vm.metadata.uid == vms[name].metadata.uid
            assert vm.metadata.labels[REVISION_LABEL] == "web-2"
            firmware = vm.spec.template.spec.domain.firmware
            assert firmware == vms[name].spec.template.spec.domain.firmware
            assert firmware.uuid
            assert vm.spec.template.spec.volumes[0].container_disk.image == "cirros:2"
            machine = (await web.machines())[name]
            assert machine.metadata.uid != machines[name].metadata.uid
            assert machine.spec.volumes[0].container_disk.image == "cirros:2"
        assert set(await web.events("SuccessfulUpdate")) == {
            f"Updated VM default/{name}" for name in vms
        }
        assert set(await web.events("SuccessfulDelete")) == {
            f"Successfully updated resource default/{name}" for name in vms
        }
        assert await web.revisions() == {"web-2"}


async def test_a_change_of_vm_fields_only_restarts_no_vmi():
    async with cluster() as c:
        web = Pools(c)
        await web.create(2)
        await web.until_ready(2)
        machines = await web.machines()
        await web.template({"metadata": {"labels": {"tier": "front"}}})
        await web.until_stable()
        await web.until_ready(2)
        for name, vm in (await web.vms()).items():
            assert vm.metadata.labels == {**LABELS, "tier": "front", REVISION_LABEL: "web-2"}
            machine = (await web.machines())[name]
            assert machine.metadata.uid == machines[name].metadata.uid
            assert machine.metadata.labels[REVISION_LABEL] == "web-2"


async def test_scaling_outdates_no_vm():
    async with cluster() as c:
        web = Pools(c)
        await web.create(2)
        await web.until_ready(2)
        await web.patch(replicas=3)
        await web.until_ready(3)
        await web.until_stable()
        assert (await web.vm(0)).metadata.labels[REVISION_LABEL] == "web-1"
        assert (await web.vm(2)).metadata.labels[REVISION_LABEL] == "web-2"
        assert await web.revisions() == {"web-1", "web-2"}
        assert await web.events("SuccessfulUpdate") == []


async def test_an_opportunistic_update_takes_effect_at_the_next_start_of_a_vmi():
    async with cluster() as c:
        web = Pools(c)
        await web.create(2, updateStrategy={"opportunistic": {}})
        await web.until_ready(2)
        machines = await web.machines()
        await web.image("cirros:2")
        await web.until_stable()
        now = await web.machines()
        assert {m.metadata.uid for m in now.values()} == {m.metadata.uid for m in machines.values()}
        for vm in (await web.vms()).values():
            assert vm.spec.template.spec.volumes[0].container_disk.image == "cirros:2"
        await c.client.delete(Machine, Key("default", "web-0"))
        await web.until_stable()
        now = await web.machines()
        assert now["web-0"].spec.volumes[0].container_disk.image == "cirros:2"
        assert now["web-1"].metadata.uid == machines["web-1"].metadata.uid


async def test_an_unmanaged_update_applies_to_new_vms_only():
    async with cluster() as c:
        web = Pools(c)
        await web.create(1, updateStrategy={"unmanaged": {}})
        await web.until_ready(1)
        before = await web.vm(0)
        await web.image("cirros:2")
        await web.patch(replicas=2)
        await web.until_ready(2)
        await web.until_stable()
        assert (await web.vm(0)).spec == before.spec
        assert (await web.vm(1)).spec.template.spec.volumes[0].container_disk.image == "cirros:2"


async def test_an_update_overwrites_manual_changes_of_a_vm():
    async with cluster() as c:
        web = Pools(c)
        await web.create(1)
        await web.until_ready(1)
        await web.change(0, {"labels": {"mine": "x"}, "annotations": {"example.com/note": "y"}})
        await web.until_stable()
        assert (await web.vm(0)).metadata.labels["mine"] == "x"
        await web.image("cirros:2")
        await web.until_stable()
        vm = await web.vm(0)
        assert "mine" not in vm.metadata.labels
        assert "example.com/note" not in vm.metadata.annotations


async def test_only_vms_that_the_selectors_match_are_updated():
    async with cluster() as c:
        web = Pools(c)
        selectors = {"labelSelector": {"matchLabels": {"shard": "b"}}}
        strategy = {"proactive": {"selectionPolicy": {"selectors": selectors}}}
        await web.create(2, updateStrategy=strategy)
        await web.until_ready(2)
        label = {"spec": {"template": {"metadata": {"labels": {"shard": "b"}}}}}
        await c.client.patch(VirtualMachine, Key("default", "web-1"), label)
        await web.image("cirros:2")
        await web.until_stable()
        images = {
            name: vm.spec.template.spec.volumes[0].container_disk.image
            for name, vm in (await web.vms()).items()
        }
        assert images == {"web-0": "cirros:1", "web-1": "cirros:2"}


@pytest.mark.parametrize(("allowed", "most"), [(1, 1), ("50%", 2), ("10%", 1), (3, 3)])
async def test_an_update_keeps_to_max_unavailable(allowed, most):
    async with cluster() as c, Background() as tasks:
        web = Pools(c)
        await web.create(4, maxUnavailable=allowed)
        await web.until_ready(4)
        before = {m.metadata.uid for m in (await web.machines()).values()}
        context = ControllerContext(c.client, clock=c.clock)
        machines = context.informers.of(Machine)
        tasks.start(context.run(), name="onlooker")
        await machines.synced()
        worst = 0

        def look(_old, _new):
            nonlocal worst
            worst = max(worst, 4 - sum(map(is_available, machines.items())))

        machines.handle(look)
        worst = 0
        await web.image("cirros:2")
        await web.until_stable()
        await web.until_ready(4)
        assert worst == most
        assert not before & {m.metadata.uid for m in (await web.machines()).values()}


async def test_unavailable_vms_are_updated_without_waiting():
    async with cluster() as c:
        web = Pools(c)
        await web.create(3, maxUnavailable=1, spec={"nodeSelector": {"nowhere": "to"}})
        await web.until_stable()
        assert len(await web.machines()) == 3
        await web.template({"spec": {"template": {"spec": {"nodeSelector": None}}}})
        await web.until_stable()
        await web.until_ready(3)


async def test_an_update_continues_after_a_restart_of_the_manager():
    async with cluster() as c:
        web = Pools(c)
        await web.create(4, maxUnavailable=1)
        await web.until_ready(4)
        await web.image("cirros:2")
        for _ in range(6):
            await asyncio.sleep(0.15)
            await c.crash_loops()
            await asyncio.sleep(1)
            c.start_loops()
        await web.until_stable()
        await web.until_ready(4)
        images = {m.spec.volumes[0].container_disk.image for m in (await web.machines()).values()}
        assert images == {"cirros:2"}


# ------------------------------------------------------------------ healing


async def test_a_vm_that_does_not_become_ready_is_recreated_under_its_ordinal(looptime):
    async with cluster() as c:
        web = Pools(c)
        healing = {"minFailingToStartDuration": "2m"}
        await web.create(2, autohealing=healing, spec={"nodeSelector": {"nowhere": "to"}})
        await web.until_stable()
        sick = await web.vm(0)
        assert sick.status.printable_status == "ErrorUnschedulable"
        await web.until_gone("web-0", sick.metadata.uid, 200)
        assert 119 <= looptime <= 130
        await c.until(lambda: _is_there(web, "web-0"))


async def _is_there(web, name):
    return name in await web.names()


async def test_a_vm_with_start_failures_is_recreated_until_its_template_is_fixed(looptime):
    """KubeVirt's own test of it, with the times that it allows."""
    fails = {"kubevirt.io/func-test-virt-launcher-fail-fast": ""}
    async with cluster() as c:
        web = Pools(c)
        labelled = {"labels": LABELS, "annotations": fails}
        document = pool(replicas=1, autohealing={})
        document["spec"]["virtualMachineTemplate"]["spec"]["template"]["metadata"] = labelled
        await c.client.create(Pool, document)

        async def has_failed():
            vms = await web.vms()
            status = vms["web-0"].status if vms else None
            known = status.start_failure.consecutive_fail_count if status.start_failure else 0
            return status.printable_status == "CrashLoopBackOff" and known >= 3

        await asyncio.sleep(2)
        await c.until(has_failed, every=1.0)
        first = (await web.vm(0)).metadata.uid
        await web.until_gone("web-0", first, 120)
        assert looptime < 100

        async def fails_again():
            vms = await web.vms()
            return "web-0" in vms and vms["web-0"].status.start_failure is not None

        await c.until(fails_again, 30)
        mended = {"annotations": dict.fromkeys(fails)}
        await web.template({"spec": {"template": {"metadata": mended}}})
        await web.until_ready(1, 30)
        assert (await web.vm(0)).status.start_failure is None


async def test_autohealing_affects_only_owned_vms_of_an_unpaused_pool():
    async with cluster() as c:
        web = Pools(c)
        healing = {"minFailingToStartDuration": "30s"}
        nowhere = {"nodeSelector": {"nowhere": "to"}}
        await web.create(2, autohealing=healing, spec=nowhere)
        await web.until_stable()
        await web.change(0, {"ownerReferences": None})
        await web.patch(paused=True)
        before = {name: vm.metadata.uid for name, vm in (await web.vms()).items()}
        await asyncio.sleep(300)
        assert {name: vm.metadata.uid for name, vm in (await web.vms()).items()} == before
        await web.patch(paused=False)
        await asyncio.sleep(60)
        after = {name: vm.metadata.uid for name, vm in (await web.vms()).items()}
        assert after["web-0"] == before["web-0"]
        assert after["web-1"] != before["web-1"]


async def test_an_unreadable_revision_counts_as_missing():
    async with cluster() as c:
        web = Pools(c)
        await web.create(1)
        await web.until_ready(1)
        await c.crash_loops()
        key = Key("default", "web-1")
        found = await c.client.get(ControllerRevision, key.name, key.namespace)
        owners = [msgspec.to_builtins(owner) for owner in found.metadata.ownerReferences]
        await c.client.delete(ControllerRevision, key)
        metadata = {"name": "web-1", "namespace": "default", "ownerReferences": owners}
        document = {"metadata": metadata, "data": {"selector": 7}, "revision": 1}
        await c.client.create(ControllerRevision, document)
        await web.image("cirros:2")
        c.start_loops()
        await web.until_stable()
        await web.until_ready(1)
        assert (await web.vm(0)).metadata.labels[REVISION_LABEL] == "web-2"
        assert await web.revisions() == {"web-2"}


async def test_a_pool_continues_once_the_name_of_its_revision_is_free():
    async with cluster() as c:
        other = {"metadata": {"name": "other", "namespace": "default"}}
        uid = (await c.client.create(ConfigMap, other)).metadata.uid
        owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "other", "uid": uid}
        owners = [owner | {"controller": True}]
        metadata = {"name": "web-1", "namespace": "default", "ownerReferences": owners}
        await c.client.create(ControllerRevision, {"metadata": metadata, "data": {}, "revision": 1})
        web = Pools(c)
        await web.create(1)
        await asyncio.sleep(3600)
        assert await web.vms() == {}
        await c.client.delete(ControllerRevision, Key("default", "web-1"))
        await asyncio.sleep(5)
        assert (await web.vms()).keys() == {"web-0"}
