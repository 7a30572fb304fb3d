"""Creates the DataVolumes of a VirtualMachine's templates, and adopts those without an owner."""

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
    """The DataVolumes and claims of all VirtualMachines, from the caches."""

    def __init__(self, context: ControllerContext, component: str) -> None:
        self.volumes: Informer[DataVolume] = context.informers.of(DataVolume)
        self.claims: Informer[PersistentVolumeClaim] = context.informers.of(PersistentVolumeClaim)
        self._client = context.client
        self._recorder = context.recorder(component)

    def of(self, vm: VirtualMachine) -> disks.Disks:
        """Return the state of a VirtualMachine's disks."""
        names = disks.names(vm)
        claims = {
            name: claim
            for name in names
            if (claim := self.claims.get(Key(vm.metadata.namespace, name))) is not None
        }
        return disks.disks(vm, self._cached(vm), claims)

    async def provide(self, vm: VirtualMachine, *, starting: bool) -> bool:
        """Create missing DataVolumes; report whether a VMI can start with what there is.

        ``starting``: a VMI is about to be created; before that the annotation
        ``IMMEDIATE_DATA_VOLUMES`` may forbid creation. Raises Refused.
        """
        found = self._cached(vm)
        if starting or vm.metadata.annotations.get(IMMEDIATE_DATA_VOLUMES) != "false":
            for other in disks.foreign(vm, found):
                raise self._refused(vm, other.metadata.name, _owner_text(other))
            await adopt(self._client, vm, list(disks.orphans(vm, found)))
            for template in disks.missing(vm, found):
                await self._create(vm, template)
        return disks.are_ready(vm, found)

    def report_failure(
        self, vm: VirtualMachine, old: DataVolume | None, new: DataVolume | None
    ) -> None:
        """Record an event when a DataVolume begins to fail."""
        if new is None or not disks.has_failed(new):
            return
        if old is not None and disks.has_failed(old):
            return
        name = new.metadata.name
        message = f"DataVolume {name} failed to import disk image"
        if disks.exceeds_quota(new):
            message = f"DataVolume {name} exceeds quota limits"
        self._recorder.event(vm, "Warning", "FailedDataVolumeImport", message)

    def _cached(self, vm: VirtualMachine) -> Mapping[str, DataVolume]:
        keys = (Key(vm.metadata.namespace, name) for name in disks.names(vm))
        return {key.name: found for key in keys if (found := self.volumes.get(key)) is not None}

    async def _create(self, vm: VirtualMachine, template: DataVolumeTemplate) -> None:
        name = template.metadata.name
        source = disks.source_claim(vm, template)
        if source is not None and self.claims.get(Key(*source)) is None:
            message = (
                f"Source PVC {source[1]} not available: Target PVC {name} will remain unpopulated "
                "until source is created"
            )
            # KubeVirt misspells the reason, and clients match it.
            self._recorder.event(vm, "Warning", "SourcePVCNotAvailabe", message)
        try:
            await self._client.create(DataVolume, disks.data_volume(vm, template))
        except AlreadyExists:
            return  # the cache will show it
        except ApiError as error:
            raise self._refused(vm, name, str(error)) from error
        message = f"Created DataVolume {name}"
        self._recorder.event(vm, "Normal", "SuccessfulDataVolumeCreate", message)

    def _refused(self, vm: VirtualMachine, name: str, cause: str) -> Refused:
        """Record an event, and return the error for the condition Failure."""
        message = f"Error creating DataVolume {name}: {cause}"
        self._recorder.event(vm, "Warning", "FailedDataVolumeCreate", message)
        prefix = "Error encountered while creating DataVolumes: failed to create DataVolume"
        return Refused("FailedCreate", f"{prefix}: {cause}")


def _owner_text(data_volume: DataVolume) -> str:
    owner = next(each for each in owners_of(data_volume) if each.controller)
    return f"one of that name belongs to {owner.kind} {owner.name}"
