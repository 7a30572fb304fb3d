"""Volumes that come and go: from what is asked for into the template, and into the machine.

Whoever asks by a subresource, and whoever changes the template, gets the same: the machine that
runs follows the volumes of its template that are hotpluggable.
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

Machine = VirtualMachineInstance


class Volumes:
    """Lets VirtualMachines, and their machines, have the volumes that are asked for."""

    def __init__(self, client: Client, recorder: EventRecorder) -> None:
        self._client = client
        self._recorder = recorder

    async def follow(
        self, vm: VirtualMachine, vmi: Machine | None
    ) -> tuple[VirtualMachine, Machine | None]:
        """Both as they are then.  Raises Refused.

        Requests are cleared only when they are in the template: to apply one again is harmless.
        """
        try:
            if vm.status.volume_requests:
                vm = await self._fulfil(vm)
            if vmi is not None and (wanted := followed(vm, vmi)) is not None:
                vmi = await self._client.patch(Machine, vmi.key, _guarded(vmi, wanted))
        except ApiError as error:
            raise Refused(
                "HotPlugVolumeError", f"Error encountered with hotplug: {error}"
            ) from error
        return vm, vmi

    async def _fulfil(self, vm: VirtualMachine) -> VirtualMachine:
        """Bring what is asked for into the template; what can never be there is dropped."""
        for request in msgspec.to_builtins(vm.status.volume_requests):
            wanted = requested(vm, request)
            if wanted is None:
                continue
            try:
                vm = await self._client.patch(VirtualMachine, vm.key, _guarded(vm, wanted))
            except Invalid as error:
                message = f"Dropped a request for volume {name_of(request)}: {error}"
                self._recorder.event(vm, "Warning", "HotPlugVolumeError", message)
        status = {"metadata": _guard(vm), "status": {"volumeRequests": None}}
        return await self._client.patch(VirtualMachine, vm.key, status, subresource="status")


def requested(vm: VirtualMachine, request: Document) -> Document | None:
    """What changes of the spec where a request is fulfilled; None for nothing."""
    before: Document = msgspec.to_builtins(vm.spec.template.spec)
    changed = _volumes(applied(request, before))
    return None if changed == _volumes(before) else {"template": {"spec": changed}}


def followed(vm: VirtualMachine, vmi: Machine) -> Document | None:
    """What changes of a running machine's spec, so that it has its template's volumes.

    Only volumes that come and go; None for nothing.  The disk of a volume that both have stays as
    the machine has it: that is completed by its preference and by defaults, the template is not.
    So does a drive whose medium leaves, even where the template has lost it.
    """
    template, machine = vm.spec.template.spec, vmi.spec
    if (
        vmi.status.phase != "Running"
        or is_being_deleted(vmi)
        or machine.domain.devices.disable_hotplug
    ):
        return None
    wanted = claims_of(filter(is_hotpluggable, template.volumes))
    plugs = hotplug_disks(machine)
    leaves = plugs.keys() - wanted.keys()
    turns = {name for name in plugs.keys() & wanted.keys() if plugs[name].claim != wanted[name]}
    comes = _coming(template, machine)
    if not (leaves or turns or comes):
        return None
    volumes = _without(machine.volumes, leaves | turns) + _only(template.volumes, turns | comes)
    trays = hotplug_cdroms(machine)
    before, after = machine.domain.devices.disks, template.domain.devices.disks
    disks = _without(before, leaves - trays) + _only(after, comes - trays)
    return {"volumes": volumes, "domain": {"devices": {"disks": disks}}}


def _coming(template: Spec, machine: Spec) -> frozenset[str]:
    """What a machine does not have yet.  A drive comes when it starts, and stays until it ends."""
    has = {volume.name for volume in machine.volumes}
    disks = {disk.name for disk in machine.domain.devices.disks}
    trays = hotplug_cdroms(machine)
    return frozenset(
        name
        for name, plug in hotplug_disks(template).items()
        if name not in has and (name in trays if plug.is_medium else name not in disks)
    )


def _without(named: Sequence[Volume | Disk], names: Collection[str]) -> list[Document]:
    return [msgspec.to_builtins(one) for one in named if one.name not in names]


def _only(named: Sequence[Volume | Disk], names: Collection[str]) -> list[Document]:
    return [msgspec.to_builtins(one) for one in named if one.name in names]


def _volumes(spec: Document) -> Document:
    """The part of a spec that requests change."""
    devices = (spec.get("domain") or {}).get("devices") or {}
    disks = {"devices": {"disks": devices.get("disks") or []}}
    return {"volumes": spec.get("volumes") or [], "domain": disks}


def _guard(seen: VirtualMachine | Machine) -> Document:
    return {"resourceVersion": seen.metadata.resource_version}


def _guarded(seen: VirtualMachine | Machine, spec: Document) -> Document:
    return {"metadata": _guard(seen), "spec": spec}
