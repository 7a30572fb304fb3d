"""Pools, as their users see them."""

import pytest
from tests.sim.cluster import cluster
from tests.sim.pools import LABELS, Pools, pool

from corral.api.errors import NotFound
from corral.api.kinds.kubevirt import pool_validation
from corral.api.kinds.kubevirt.pool import FINALIZER, REVISION_LABEL, VirtualMachinePool as Pool
from corral.api.kinds.kubevirt.virtualmachine import VirtualMachine

pytestmark = pytest.mark.looptime

COMPONENT = "virtualmachinepool-controller"


async def test_a_pool_of_three_becomes_ready_and_is_deleted():
    async with cluster() as c:
        web = Pools(c)
        await web.create(3)
        await web.until_ready(3)
        assert await web.names() == {"web-0", "web-1", "web-2"}
        assert set(await web.machines()) == {"web-0", "web-1", "web-2"}
        status = (await web.get()).status
        assert status.label_selector == "pool=web"
        await web.patch(replicas=0)
        await web.until_ready(0)
        assert await web.names() == set()
        assert await web.revisions() == set(), "what nothing was made from is not kept"


async def test_vms_have_the_metadata_of_the_template_and_the_pool():
    async with cluster() as c:
        web = Pools(c)
        await web.create(1, vm_labels={"tier": "front"})
        await web.until_ready(1)
        vm, one = await web.vm(0), await web.get()
        assert vm.metadata.labels == {**LABELS, "tier": "front", REVISION_LABEL: "web-1"}
        assert FINALIZER in vm.metadata.finalizers
        assert FINALIZER in one.metadata.finalizers
        [owner] = vm.metadata.owner_references
        assert (owner.api_version, owner.kind) == ("pool.kubevirt.io/v1beta1", "VirtualMachinePool")
        assert (owner.uid, owner.controller, owner.block_owner_deletion) == (
            one.metadata.uid,
            True,
            True,
        )
        machine = (await web.machines())["web-0"]
        assert machine.metadata.labels[REVISION_LABEL] == "web-1"
        [pod] = await c.pods()
        assert pod.metadata.labels[REVISION_LABEL] == "web-1"


async def test_each_creation_and_deletion_is_an_event_with_the_message_of_the_user_guide():
    async with cluster() as c:
        web = Pools(c)
        await web.create(2)
        await web.until_ready(2)
        assert set(await web.events("SuccessfulCreate")) == {
            "Created VM default/web-0",
            "Created VM default/web-1",
        }
        uids = {vm.metadata.uid: name for name, vm in (await web.vms()).items()}
        await web.patch(replicas=0)
        await web.until_ready(0)
        assert set(await web.events("SuccessfulDelete")) == {
            f"Deleted VM default/{name} with uid {uid} from pool" for uid, name in uids.items()
        }
        components = [event.source.component for event in await c.events("web")]
        assert set(components) == {COMPONENT}


async def test_the_lowest_free_ordinal_is_used_first():
    async with cluster() as c:
        web = Pools(c)
        foreign = pool()["spec"]["virtualMachineTemplate"]["spec"] | {"runStrategy": "Halted"}
        document = {"metadata": {"name": "web-1", "namespace": "default"}, "spec": foreign}
        await c.client.create(VirtualMachine, document)
        await web.create(3)
        await web.until_ready(3)
        assert await web.names() == {"web-0", "web-1", "web-2", "web-3"}
        assert (await web.vm(1)).metadata.owner_references == []
        uid = (await web.vm(2)).metadata.uid
        await web.delete(2)
        await web.until_gone("web-2", uid)
        await web.until_ready(3)
        assert await web.names() == {"web-0", "web-1", "web-2", "web-3"}


async def test_a_deleted_vm_is_replaced_under_its_ordinal_once_it_is_gone():
    async with cluster() as c:
        web = Pools(c)
        await web.create(3)
        await web.until_ready(3)
        old = await web.vm(1)
        await web.delete(1)
        most = 0

        async def is_replaced():
            nonlocal most
            vms = await web.vms()
            most = max(most, len(vms))
            return "web-1" in vms and vms["web-1"].metadata.uid != old.metadata.uid

        await c.until(is_replaced)
        await web.until_ready(3)
        assert most == 3
        assert await web.events("SuccessfulDelete") == [], "the pool did not delete it"


async def test_replicas_default_to_one():
    async with cluster() as c:
        web = Pools(c)
        document = pool()
        del document["spec"]["replicas"]
        await c.client.create(Pool, document)
        await web.until_ready(1)


async def test_a_pool_adopts_no_orphans():
    async with cluster() as c:
        web = Pools(c)
        template = pool()["spec"]["virtualMachineTemplate"]
        metadata = {"name": "web-7", "namespace": "default", "labels": LABELS}
        await c.client.create(VirtualMachine, {"metadata": metadata, "spec": template["spec"]})
        await web.create(2)
        await web.until_ready(2)
        assert await web.names() == {"web-0", "web-1", "web-7"}
        assert (await web.vm(7)).metadata.owner_references == []


# ------------------------------------------------------------------ leaving a pool


async def test_a_detached_vm_runs_on_and_is_replaced_under_the_next_ordinal():
    async with cluster() as c:
        web = Pools(c)
        await web.create(3)
        await web.until_ready(3)
        machine = (await web.machines())["web-0"]
        await web.change(0, {"ownerReferences": None})
        await web.until_ready(3)
        assert await web.names() == {"web-0", "web-1", "web-2", "web-3"}
        detached = await web.vm(0)
        assert detached.metadata.labels[REVISION_LABEL] == "web-1"
        assert (await web.machines())["web-0"].metadata.uid == machine.metadata.uid
        assert detached.status.printable_status == "Running"
        await web.until_finalizers_are_removed()
        await web.delete(0)
        await web.until_gone("web-0")


async def test_a_vm_whose_labels_stop_matching_is_released_and_replaced():
    async with cluster() as c:
        web = Pools(c)
        await web.create(2)
        await web.until_ready(2)
        await web.change(0, {"labels": {"pool": "debug"}})
        await web.until_stable()
        await web.until_ready(2)
        assert await web.names() == {"web-0", "web-1", "web-2"}
        freed = await web.vm(0)
        assert freed.metadata.owner_references == []
        assert FINALIZER not in freed.metadata.finalizers
        assert "kubevirt.io/virtualMachineControllerFinalize" in freed.metadata.finalizers
        assert freed.status.printable_status == "Running"
        await web.delete(0)
        await web.until_gone("web-0")


async def test_finalizers_of_others_stay_on_a_pool():
    async with cluster() as c:
        document = pool()
        document["metadata"]["finalizers"] = ["example.com/mine"]
        await c.client.create(Pool, document)
        web = Pools(c)
        await web.until_ready(3)
        assert set((await web.get()).metadata.finalizers) == {"example.com/mine", FINALIZER}


# ------------------------------------------------------------------ pause and deletion


async def test_a_paused_pool_only_updates_its_status():
    async with cluster() as c:
        web = Pools(c)
        await web.create(2, paused=True)

        async def says_paused():
            conditions = (await web.get()).status.conditions
            return [(one.type, one.status, one.reason, one.message) for one in conditions] == [
                ("ReplicaPaused", "True", "SuccessfulPaused", "Pool controller is paused")
            ]

        await c.until(says_paused)
        await web.until_stable()
        assert await web.names() == set()
        await web.patch(paused=False)
        await web.until_ready(2)
        assert await web.events("SuccessfulPaused") == ["Pool is paused"]
        assert await web.events("SuccessfulResume") == ["Pool is unpaused"]


async def test_a_paused_pool_releases_vms_that_users_delete():
    async with cluster() as c:
        web = Pools(c)
        await web.create(2)
        await web.until_ready(2)
        await web.patch(paused=True)
        await web.delete(0)
        await web.until_gone("web-0")
        await web.until_stable()
        assert await web.names() == {"web-1"}
        assert (await web.get()).status.replicas == 1


@pytest.mark.parametrize("policy", ["Background", "Foreground"])
async def test_deleting_a_pool_deletes_its_vms_and_vmis(policy):
    async with cluster() as c:
        web = Pools(c)
        await web.create(3)
        await web.until_ready(3)
        await c.client.delete(Pool, web.key, propagation=policy)

        async def all_gone():
            return not await web.names() and not await web.machines() and not await c.pods()

        await c.until(all_gone)
        await web.until_stable()
        with pytest.raises(NotFound):
            await web.get()
        assert await web.revisions() == set()


async def test_orphan_deletion_leaves_running_vms_without_finalizers():
    async with cluster() as c:
        web = Pools(c)
        await web.create(3)
        await web.until_ready(3)
        before = {name: machine.metadata.uid for name, machine in (await web.machines()).items()}
        await c.client.delete(Pool, web.key, propagation="Orphan")
        await web.until_finalizers_are_removed()
        await web.until_stable()
        with pytest.raises(NotFound):
            await web.get()
        vms = await web.vms()
        assert set(vms) == {"web-0", "web-1", "web-2"}
        assert all(vm.metadata.owner_references == [] for vm in vms.values())
        after = {name: machine.metadata.uid for name, machine in (await web.machines()).items()}
        assert after == before
        for number in range(3):
            await web.delete(number)
        for name in vms:
            await web.until_gone(name)


@pytest.mark.parametrize("made_again", [False, True], ids=["gone", "another of its name"])
async def test_vms_are_deleted_after_the_finalizer_of_their_pool_was_removed_by_hand(made_again):
    async with cluster() as c:
        web = Pools(c)
        await web.create(2)
        await web.until_ready(2)
        await c.crash_loops()
        await c.client.patch(Pool, web.key, {"metadata": {"finalizers": None}})
        await c.client.delete(Pool, web.key)
        if made_again:
            await web.create(0)
        c.start_loops()
        for name in ("web-0", "web-1"):
            await web.until_gone(name)


# ------------------------------------------------------------------ refusals


async def test_a_rejected_creation_is_reported_once():
    async with cluster() as c:
        name = "a" * 70
        web = Pools(c, name)
        await web.create(12)

        async def says_failure():
            return bool((await web.get()).status.conditions)

        try:
            await c.until(says_failure, 20)
        except TimeoutError:
            pytest.fail(f"no event was written; there are {len(await web.names())} VirtualMachines")
        [condition] = (await web.get()).status.conditions
        assert (condition.type, condition.reason) == ("ReplicaFailure", "FailedScaleOut")
        assert condition.message.startswith("error during scale out: ")
        assert await web.events("FailedScaleOut") == [condition.message]
        assert (await web.events("FailedCreate"))[0].startswith("Error creating VM: ")


async def test_a_pool_whose_selector_does_not_match_can_be_deleted(monkeypatch):
    """Admission refuses such a pool; one may have been stored before it did."""
    async with cluster() as c:
        web = Pools(c)
        anything = {"matchExpressions": [{"key": "x", "operator": "DoesNotExist"}]}
        await web.create(1, selector=anything)
        await web.until_ready(1)
        monkeypatch.setattr(pool_validation, "check_selector", lambda *_: [])
        await web.template({"metadata": {"labels": None}})
        await web.until_stable()
        await c.client.delete(Pool, web.key)
        await web.until_gone("web-0", seconds=20)
        with pytest.raises(NotFound):
            await web.get()
