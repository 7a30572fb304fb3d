"""Warm pools of VirtualMachinePools: members start from a checkpoint."""

import asyncio

import pytest
from tests.sim.cluster import cluster
from tests.sim.pools import pool
from tests.sim.warm_pools import POOL, boot, checkpoint_for, pool_of

from corral.api.errors import Invalid
from corral.api.kinds.corral.checkpoint import VirtualMachineCheckpoint as Checkpoint
from corral.api.kinds.corral.warm_pool import VirtualMachineWarmPool as WarmPool
from corral.api.kinds.kubevirt.installation import KEY, KubeVirt
from corral.api.kinds.kubevirt.pool import VirtualMachinePool as Pool
from corral.api.kinds.kubevirt.virtualmachine import VirtualMachine
from corral.api.kinds.vmi.fork_state import has_booted_instead, has_own_identity
from corral.api.kinds.vmi.saved_memory import starts_from
from corral.api.kinds.vmi.vmi import VirtualMachineInstance as Machine
from corral.api.object import Key
from corral.controllers.warmpool.checkpoint_plan import RETRY_SECONDS
from corral.reconcile.objects import controller_of

pytestmark = [pytest.mark.looptime, pytest.mark.timeout(60)]

WEB = Key("default", "web")
NETWORK = {"networks": [{"name": "default", "pod": {}}]}
DEVICES = {
    "disks": [{"name": "root", "disk": {}}],
    "interfaces": [{"name": "default", "masquerade": {}}],
}
DOMAIN = {"memory": {"guest": "64Mi"}, "devices": DEVICES}


def forkable(replicas=1, **more):
    """A pool whose members may be forked."""
    return pool(replicas=replicas, spec={**NETWORK, "domain": DOMAIN}, **more)


async def prepare(c, document=None):
    await c.client.create(Pool, document or forkable())
    await c.client.create(WarmPool, checkpoint_for())


async def until_checkpoint(c, *, other_than="", seconds=600.0):
    """Wait until the warm pool has one checkpoint, and nothing else; return its name."""

    async def is_alone():
        name = (await pool_of(c)).status.checkpoint
        made = [each.metadata.name for each in (await c.client.list(Checkpoint)).items]
        owners = [controller_of(each) for each in await c.machines()]
        kinds = {owner.kind for owner in owners if owner is not None}
        return name not in {"", other_than} and made == [name] and kinds <= {VirtualMachine.kind}

    await c.until(is_alone, seconds)
    return (await pool_of(c)).status.checkpoint


async def until_ready(c, count, seconds=120.0):
    async def are_ready():
        status = (await c.client.get(Pool, "web", "default")).status
        return status.replicas == status.ready_replicas == count

    await c.until(are_ready, seconds)


async def until_condition(c, kind, reason):
    async def is_so():
        conditions = (await pool_of(c)).status.conditions
        return reason in {each.reason for each in conditions if each.type == kind}

    await c.until(is_so, 600)
    (found,) = [each for each in (await pool_of(c)).status.conditions if each.type == kind]
    return found


async def scale(c, replicas):
    await c.client.patch(Pool, WEB, {"spec": {"replicas": replicas}})


async def origins(c):
    """Return the checkpoint that each member has started from, by its name; empty: it booted."""
    found = [each for each in await c.machines() if controller_of(each).kind == VirtualMachine.kind]
    return {
        each.metadata.name: "" if has_booted_instead(each) else starts_from(each) for each in found
    }


async def test_new_members_start_from_the_checkpoint_and_keep_their_numbers():
    async with cluster() as c:
        boot(c, boot_seconds=5)
        await prepare(c)
        made = await until_checkpoint(c)
        assert (await until_condition(c, "Ready", "SparesReady")).status == "True"
        boot(c, boot_seconds=1000)
        await scale(c, 4)
        await until_ready(c, 4, 10)
        assert await origins(c) == {"web-0": "", "web-1": made, "web-2": made, "web-3": made}
        members = [each for each in await c.machines() if starts_from(each)]
        assert all(map(has_own_identity, members))
        assert len({each.spec.domain.firmware.uuid for each in members}) == 3
        assert (await c.client.get(Checkpoint, made, "default")).status.forks == 3


async def test_a_member_that_starts_again_starts_from_the_checkpoint():
    async with cluster() as c:
        await prepare(c)
        made = await until_checkpoint(c)
        await c.client.delete(Machine, WEB._replace(name="web-0"))

        async def is_fork():
            return (await origins(c)).get("web-0") == made

        await c.until(is_fork)
        await until_ready(c, 1)


async def test_a_changed_template_gets_another_checkpoint_from_which_updated_members_start():
    async with cluster() as c:
        await prepare(c, forkable(3))
        before = await until_checkpoint(c)
        template = forkable(3)["spec"]["virtualMachineTemplate"]
        template["spec"]["template"]["spec"]["domain"] = {**DOMAIN, "memory": {"guest": "96Mi"}}
        change = {"virtualMachineTemplate": template, "updateStrategy": {"unmanaged": {}}}
        await c.client.patch(Pool, WEB, {"spec": change})
        after = await until_checkpoint(c, other_than=before)
        await c.client.delete(Machine, WEB._replace(name="web-1"))
        await scale(c, 4)
        await until_ready(c, 4)
        # A member of the former template has other memory than the checkpoint.
        assert await origins(c) == {"web-0": "", "web-1": "", "web-2": "", "web-3": after}


async def test_a_virtual_machine_that_its_user_has_changed_boots():
    async with cluster() as c:
        await prepare(c)
        made = await until_checkpoint(c)
        disks = [{"name": "root", "disk": {"bus": "sata"}}]
        change = {"template": {"spec": {"domain": {"devices": {"disks": disks}}}}}
        key = WEB._replace(name="web-0")
        await c.client.patch(VirtualMachine, key, {"spec": change})
        first = await c.client.get(Machine, key.name, key.namespace)
        await c.client.delete(Machine, key)

        async def is_another():
            return (
                key.name in await origins(c)
                and first.metadata.uid
                != (await c.client.get(Machine, key.name, key.namespace)).metadata.uid
            )

        await c.until(is_another)
        assert not starts_from(await c.client.get(Machine, key.name, key.namespace))
        assert (await pool_of(c)).status.checkpoint == made


async def test_room_for_live_updates_is_in_the_checkpoint_as_well():
    async with cluster() as c:
        await prepare(c)
        before = await until_checkpoint(c)
        staged = {"spec": {"configuration": {"vmRolloutStrategy": "Stage"}}}
        await c.client.create(KubeVirt, {"metadata": KEY._asdict(), **staged})
        after = await until_checkpoint(c, other_than=before)
        await scale(c, 2)
        await until_ready(c, 2)
        assert (await origins(c))["web-1"] == after


OWN = {"name": "disk"}
CLAIMED = {
    "dataVolumeTemplates": [{"metadata": OWN, "spec": {"source": {"blank": {}}, "storage": {}}}]
}


async def test_a_pool_whose_disks_cannot_be_copied_gets_none_and_the_condition_names_the_volume():
    async with cluster() as c:
        volumes = {"volumes": [{"name": "root", "dataVolume": OWN}]}
        document = pool(replicas=0, vm=CLAIMED, spec={**NETWORK, "domain": DOMAIN, **volumes})
        await prepare(c, document)
        for kind in ("Ready", "CheckpointReady"):
            found = await until_condition(c, kind, "NotSupported")
            assert found.status == "False"
            path = "spec.virtualMachineTemplate.spec.template.spec.volumes[0]"
            assert found.message.startswith(f"VirtualMachinePool web: {path}: ")
            assert '"root"' in found.message
        version = (await pool_of(c)).metadata.resource_version
        await asyncio.sleep(3 * RETRY_SECONDS)
        assert (await pool_of(c)).metadata.resource_version == version, "nothing is tried again"
        assert not await c.machines()
        assert not (await c.client.list(Checkpoint)).items


async def test_a_checkpoint_is_dropped_when_the_template_cannot_start_from_one_any_more():
    async with cluster() as c:
        await prepare(c)
        await until_checkpoint(c)
        change = {"spec": {"preference": {"name": "missing"}}}
        await c.client.patch(Pool, WEB, {"spec": {"virtualMachineTemplate": change}})
        found = await until_condition(c, "CheckpointReady", "NotSupported")
        assert "spec.virtualMachineTemplate.spec.preference" in found.message

        async def is_dropped():
            return not (await c.client.list(Checkpoint)).items

        await c.until(is_dropped)


async def test_a_member_that_could_not_start_from_the_checkpoint_has_it_made_anew():
    async with cluster() as c:
        await prepare(c)
        before = await until_checkpoint(c)
        made = await c.client.get(Checkpoint, before, "default")
        files = c.node_directory(made.status.node_name) / "checkpoints" / made.metadata.uid
        (files / "devices").write_bytes(b"x")
        await scale(c, 2)
        await until_ready(c, 2)
        after = await until_checkpoint(c, other_than=before, seconds=RETRY_SECONDS + 60)
        await scale(c, 3)
        await until_ready(c, 3)
        assert (await origins(c))["web-2"] == after


async def test_spares_of_such_a_pool_are_refused_by_scale_too():
    async with cluster() as c:
        await prepare(c)
        with pytest.raises(Invalid, match="a spare cannot become one"):
            await c.client.patch(WarmPool, POOL, {"spec": {"replicas": 1}}, subresource="scale")
