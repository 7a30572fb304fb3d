"""Makes the DataVolumes that a VirtualMachine asks for, and takes over those that it left."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from lightkube.models.core_v1 import PersistentVolumeClaim

from corral.api.errors import AlreadyExists, ApiError
from corral.api.kinds.cdi.datavolume import DataVolume, DataVolumeTemplate
from corral.api.kinds.kubevirt.virtualmachine import IMMEDIATE_DATA_VOLUMES, VirtualMachine
from corral.api.object import Key
from corral.controllers.vm import disks
from corral.controllers.vm.errors import Refused
from corral.reconcile.context import ControllerContext
from corral.reconcile.objects import owners_of
from corral.reconcile.ownership import adopt

if TYPE_CHECKING:
    from corral.reconcile.informer import Informer


class DataVolumes:
    """The DataVolumes and claims of all VirtualMachines, as the caches show them."""

    def __init__(self, context: ControllerContext, component: str) -> None:
        self.volumes: Informer[DataVolume] = context.informers.of(DataVolume)
        self.claims: Informer[PersistentVolumeClaim] = context.informers.of(PersistentVolumeClaim)
        self._client = context.client
        self._recorder = context.recorder(component)

    def of(self, vm: VirtualMachine) -> disks.Disks:
        """How the disks of a VirtualMachine are."""
        names = disks.names(vm)
        claims = {
            name: claim
            for name in names
            if (claim := self.claims.get(Key(vm.metadata.namespace, name))) is not None
        }
        return disks.disks(vm, self._found(vm), claims)

    async def provide(self, vm: VirtualMachine, *, starting: bool) -> bool:
        """Make what is missing; answers whether a machine can start with what is there.

        ``starting`` tells that it is about to: some VirtualMachines have nothing made before.
        Raises Refused.
        """
        found = self._found(vm)
        if starting or vm.metadata.annotations.get(IMMEDIATE_DATA_VOLUMES) != "false":
            for other in disks.foreign(vm, found):
                raise self._refused(vm, other.metadata.name, _belongs(other))
            await adopt(self._client, vm, list(disks.orphans(vm, found)))
            for template in disks.missing(vm, found):
                await self._make(vm, template)
        return disks.are_settled(vm, found)

    def tell_of_failure(
        self, vm: VirtualMachine, old: DataVolume | None, new: DataVolume | None
    ) -> None:
        """Say that a DataVolume cannot be filled, when that is news."""
        if new is None or not disks.has_failed(new):
            return
        if old is not None and disks.has_failed(old):
            return
        name = new.metadata.name
        message = f"DataVolume {name} failed to import disk image"
        if disks.exceeds_quota(new):
            message = f"DataVolume {name} exceeds quota limits"
        self._recorder.event(vm, "Warning", "FailedDataVolumeImport", message)

    def _found(self, vm: VirtualMachine) -> Mapping[str, DataVolume]:
        keys = (Key(vm.metadata.namespace, name) for name in disks.names(vm))
        return {key.name: found for key in keys if (found := self.volumes.get(key)) is not None}

    async def _make(self, vm: VirtualMachine, template: DataVolumeTemplate) -> None:
        name = template.metadata.name
        source = disks.source_claim(vm, template)
        if source is not None and self.claims.get(Key(*source)) is None:
            message = (
                f"Source PVC {source[1]} not available: Target PVC {name} will remain unpopulated "
                "until source is created"
            )
            # The reason is misspelled in KubeVirt, and looked for as it is.
            self._recorder.event(vm, "Warning", "SourcePVCNotAvailabe", message)
        try:
            await self._client.create(DataVolume, disks.data_volume(vm, template))
        except AlreadyExists:
            return  # the cache will show it
        except ApiError as error:
            raise self._refused(vm, name, str(error)) from error
        message = f"Created DataVolume {name}"
        self._recorder.event(vm, "Normal", "SuccessfulDataVolumeCreate", message)

    def _refused(self, vm: VirtualMachine, name: str, why: str) -> Refused:
        """Tell that a VirtualMachine cannot have a DataVolume."""
        message = f"Error creating DataVolume {name}: {why}"
        self._recorder.event(vm, "Warning", "FailedDataVolumeCreate", message)
        told = "Error encountered while creating DataVolumes: failed to create DataVolume"
        return Refused("FailedCreate", f"{told}: {why}")


def _belongs(data_volume: DataVolume) -> str:
    owner = next(each for each in owners_of(data_volume) if each.controller)
    return f"one of that name belongs to {owner.kind} {owner.name}"
