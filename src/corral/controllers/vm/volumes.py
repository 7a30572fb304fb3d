"""Volumes that come and go: from what is asked for into the template, and into the machine.

Whoever asks by a subresource, and whoever changes the template, gets the same: the machine that
runs follows the volumes of its template that are hotpluggable.
"""

from typing import Any

import msgspec

from corral.api.errors import ApiError
from corral.api.kinds.hotplug import plugs_of
from corral.api.kinds.virtualmachine import VirtualMachine
from corral.api.kinds.vmi import Spec, VirtualMachineInstance
from corral.api.kinds.volume_requests import applied
from corral.api.object import Document
from corral.client.client import Client
from corral.controllers.vm.refused import Refused
from corral.reconcile.objects import is_going

Machine = VirtualMachineInstance


class Volumes:
    """Lets VirtualMachines, and their machines, have the volumes that are asked for."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def follow(
        self, vm: VirtualMachine, vmi: Machine | None
    ) -> tuple[VirtualMachine, Machine | None]:
        """Both as they are then.  Raises Refused.

        Requests are cleared only when they are in the template: to apply one again is harmless.
        """
        try:
            if vm.status.volume_requests:
                if (wanted := requested(vm)) is not None:
                    vm = await self._client.patch(VirtualMachine, vm.key, _guarded(vm, wanted))
                status = {"metadata": _guard(vm), "status": {"volumeRequests": None}}
                vm = await self._client.patch(VirtualMachine, vm.key, status, subresource="status")
            if vmi is not None and (wanted := followed(vm, vmi)) is not None:
                vmi = await self._client.patch(Machine, vmi.key, _guarded(vmi, wanted))
        except ApiError as error:
            raise Refused(
                "HotPlugVolumeError", f"Error encountered with hotplug: {error}"
            ) from error
        return vm, vmi


def requested(vm: VirtualMachine) -> Document | None:
    """What changes of the spec where all requests are fulfilled; None for nothing."""
    before: Document = msgspec.to_builtins(vm.spec.template.spec)
    after = before
    for request in vm.status.volume_requests:
        after = applied(msgspec.to_builtins(request), after)
    changed = _volumes(after)
    return None if changed == _volumes(before) else {"template": {"spec": changed}}


def followed(vm: VirtualMachine, vmi: Machine) -> Document | None:
    """What changes of a running machine's spec, so that it has its template's volumes.

    Only volumes that come and go; None for nothing.
    """
    if vmi.status.phase != "Running" or is_going(vmi):
        return None
    wanted, present = vm.spec.template.spec, vmi.spec
    if vmi.spec.domain.devices.disable_hotplug or _plugged(wanted) == _plugged(present):
        return None
    changed = {part: _kept(present, part) + _chosen(wanted, part) for part in ("volumes", "disks")}
    devices = {"disks": changed["disks"]}
    return {"volumes": changed["volumes"], "domain": {"devices": devices}}


def _plugged(spec: Spec) -> Document:
    return {part: _chosen(spec, part) for part in ("volumes", "disks")}


def _chosen(spec: Spec, part: str) -> list[Document]:
    """The volumes, or the disks, of a spec that come and go."""
    names = plugs_of(spec).keys()
    return [msgspec.to_builtins(one) for one in _listed(spec, part) if one.name in names]


def _kept(spec: Spec, part: str) -> list[Document]:
    names = plugs_of(spec).keys()
    return [msgspec.to_builtins(one) for one in _listed(spec, part) if one.name not in names]


def _listed(spec: Spec, part: str) -> list[Any]:
    return list(spec.volumes if part == "volumes" else spec.domain.devices.disks)


def _volumes(spec: Document) -> Document:
    """The part of a spec that requests change."""
    devices = (spec.get("domain") or {}).get("devices") or {}
    disks = {"devices": {"disks": devices.get("disks") or []}}
    return {"volumes": spec.get("volumes") or [], "domain": disks}


def _guard(seen: VirtualMachine | Machine) -> Document:
    return {"resourceVersion": seen.metadata.resource_version}


def _guarded(seen: VirtualMachine | Machine, spec: Document) -> Document:
    return {"metadata": _guard(seen), "spec": spec}
