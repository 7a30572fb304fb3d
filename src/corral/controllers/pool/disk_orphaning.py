"""Releases the disks of a VirtualMachine that is deleted, so that the garbage collector keeps them.

The next VirtualMachine of the same name adopts them by their names.
"""

from collections.abc import Iterator

from corral.api.errors import NotFound
from corral.api.kind import Kind
from corral.api.kinds import KINDS
from corral.api.kinds.cdi.datavolume import GROUP as CDI
from corral.api.kinds.kubevirt.virtualmachine import VirtualMachine
from corral.api.object import Key
from corral.client.client import Client
from corral.reconcile.objects import Partial, controller_uid
from corral.reconcile.ownership import owners_without, patch_preconditions


def disks_of(vm: VirtualMachine) -> Iterator[tuple[str, str, str]]:
    """Yield group, kind and name of the objects that may hold a VirtualMachine's data."""
    templates = {each.metadata.name for each in vm.spec.data_volume_templates}
    volumes = vm.spec.template.spec.volumes
    named = {each.data_volume.name for each in volumes if each.data_volume is not None}
    claimed = {
        each.persistent_volume_claim.claim_name
        for each in volumes
        if each.persistent_volume_claim is not None
    }
    for name in sorted(templates | claimed):
        yield "", "PersistentVolumeClaim", name
    for name in sorted(templates | named):
        yield CDI, "DataVolume", name


async def orphan_disks(client: Client, vm: VirtualMachine) -> None:
    """Remove a VirtualMachine's owner reference from the disks that it controls.

    They are read from the API: a cache might lack the newest.
    """
    for group, name_of_kind, name in disks_of(vm):
        kind = KINDS.by_kind(group, name_of_kind)
        assert kind is not None
        await _orphan(client, kind, Key(vm.metadata.namespace, name), vm.metadata.uid)


async def _orphan(client: Client, kind: Kind, key: Key, owner: str) -> None:
    try:
        disk = await client.get(Partial, key.name, key.namespace, kind=kind)
        if controller_uid(disk) != owner:
            return
        metadata = {**patch_preconditions(disk), "ownerReferences": owners_without(disk, owner)}
        await client.patch(Partial, key, {"metadata": metadata}, kind=kind)
    except NotFound:
        return
