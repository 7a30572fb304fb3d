"""Hot-plugged volumes: from ``status.volumeRequests`` into the template, then into the VMI.

The subresources addvolume and removevolume and an edit of the template do the same: the running VMI
follows the hotpluggable volumes of its template.
"""

from collections.abc import Collection, Sequence

import msgspec

from corral.api.errors import ApiError, Invalid
from corral.api.kinds.kubevirt.virtualmachine import VirtualMachine
from corral.api.kinds.vmi.disks import Disk
from corral.api.kinds.vmi.hotplug import hotplug_cdroms, hotplug_disks, is_hotpluggable
from corral.api.kinds.vmi.vmi import Spec, VirtualMachineInstance
from corral.api.kinds.vmi.volume_requests import applied, name_of
from corral.api.kinds.vmi.volumes import Volume, claims_of
from corral.api.object import Document
from corral.client.client import Client
from corral.controllers.vm.errors import Refused
from corral.reconcile.events import EventRecorder
from corral.reconcile.objects import is_being_deleted

VMI = VirtualMachineInstance


class Volumes:
    """Adds and removes hotpluggable volumes of VirtualMachines and their VMIs."""

    def __init__(self, client: Client, recorder: EventRecorder) -> None:
        self._client = client
        self._recorder = recorder

    async def sync(self, vm: VirtualMachine, vmi: VMI | None) -> tuple[VirtualMachine, VMI | None]:
        """Sync template and VMI; return both as they are then. Raises Refused.

        Requests are cleared only once they are in the template: to apply one twice is harmless.
        """
        try:
            if vm.status.volume_requests:
                vm = await self._apply_requests(vm)
            if vmi is not None and (desired := vmi_change(vm, vmi)) is not None:
                vmi = await self._client.patch(VMI, vmi.key, _guarded(vmi, desired))
        except ApiError as error:
            raise Refused(
                "HotPlugVolumeError", f"Error encountered with hotplug: {error}"
            ) from error
        return vm, vmi

    async def _apply_requests(self, vm: VirtualMachine) -> VirtualMachine:
        """Apply requests to the template; drop those that are invalid."""
        for request in msgspec.to_builtins(vm.status.volume_requests):
            desired = spec_change(vm, request)
            if desired is None:
                continue
            try:
                vm = await self._client.patch(VirtualMachine, vm.key, _guarded(vm, desired))
            except Invalid as error:
                message = f"Dropped a request for volume {name_of(request)}: {error}"
                self._recorder.event(vm, "Warning", "HotPlugVolumeError", message)
        status = {"metadata": _guard(vm), "status": {"volumeRequests": None}}
        return await self._client.patch(VirtualMachine, vm.key, status, subresource="status")


def spec_change(vm: VirtualMachine, request: Document) -> Document | None:
    """Return the change of the spec for a request; None for no change."""
    before: Document = msgspec.to_builtins(vm.spec.template.spec)
    changed = _volumes(applied(request, before))
    return None if changed == _volumes(before) else {"template": {"spec": changed}}


def vmi_change(vm: VirtualMachine, vmi: VMI) -> Document | None:
    """Return the change of a running VMI's spec to its template's volumes; None for no change.

    Only hotpluggable volumes change. The disk of a volume that both have stays as in the VMI:
    preference and defaults have completed it there, not in the template. So does a drive whose
    medium is removed, even where the template has lost the drive.
    """
    template, vmi_spec = vm.spec.template.spec, vmi.spec
    if (
        vmi.status.phase != "Running"
        or is_being_deleted(vmi)
        or vmi_spec.domain.devices.disable_hotplug
    ):
        return None
    desired = claims_of(filter(is_hotpluggable, template.volumes))
    plugs = hotplug_disks(vmi_spec)
    removed = plugs.keys() - desired.keys()
    replaced = {
        name for name in plugs.keys() & desired.keys() if plugs[name].claim != desired[name]
    }
    added = _added(template, vmi_spec)
    if not (removed or replaced or added):
        return None
    volumes = _without(vmi_spec.volumes, removed | replaced) + _only(
        template.volumes, replaced | added
    )
    trays = hotplug_cdroms(vmi_spec)
    before, after = vmi_spec.domain.devices.disks, template.domain.devices.disks
    disks = _without(before, removed - trays) + _only(after, added - trays)
    return {"volumes": volumes, "domain": {"devices": {"disks": disks}}}


def _added(template: Spec, vmi_spec: Spec) -> frozenset[str]:
    """Return the names of volumes to plug in. Drives are added only when a VMI starts."""
    present = {volume.name for volume in vmi_spec.volumes}
    disks = {disk.name for disk in vmi_spec.domain.devices.disks}
    trays = hotplug_cdroms(vmi_spec)
    return frozenset(
        name
        for name, plug in hotplug_disks(template).items()
        if name not in present and (name in trays if plug.is_medium else name not in disks)
    )


def _without(named: Sequence[Volume | Disk], names: Collection[str]) -> list[Document]:
    return [msgspec.to_builtins(one) for one in named if one.name not in names]


def _only(named: Sequence[Volume | Disk], names: Collection[str]) -> list[Document]:
    return [msgspec.to_builtins(one) for one in named if one.name in names]


def _volumes(spec: Document) -> Document:
    """Return the part of a spec that requests change."""
    devices = (spec.get("domain") or {}).get("devices") or {}
    disks = {"devices": {"disks": devices.get("disks") or []}}
    return {"volumes": spec.get("volumes") or [], "domain": disks}


def _guard(observed: VirtualMachine | VMI) -> Document:
    return {"resourceVersion": observed.metadata.resource_version}


def _guarded(observed: VirtualMachine | VMI, spec: Document) -> Document:
    return {"metadata": _guard(observed), "spec": spec}
