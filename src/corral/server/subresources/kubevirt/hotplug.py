"""addvolume and removevolume: hotplug of volumes, by KubeVirt's subresources.

On a VMI they change its spec, which its node syncs.  On a VirtualMachine they add to
``status.volumeRequests``, which its controller applies to the template and to the VMI.
"""

from dataclasses import replace
from typing import Final

import msgspec

from corral.api.errors import BadRequest, Conflict, MethodNotAllowed
from corral.api.kind import Kind, at
from corral.api.kinds.kubevirt.kinds import VIRTUAL_MACHINE
from corral.api.kinds.vmi import volume_requests as requests
from corral.api.kinds.vmi.admission import validate_spec
from corral.api.object import Document
from corral.api.request import Response
from corral.server.registry.rest import Updates
from corral.server.request import kubevirt_options
from corral.server.request.call import Call, storage
from corral.server.request.kubevirt_options import SINGULAR, conflict, not_found
from corral.server.subresources.kubevirt.virtual_machines import SERVER

SUBRESOURCES: Final = ("addvolume", "removevolume")


class Options(msgspec.Struct, rename="camel"):
    """KubeVirt's AddVolumeOptions; its RemoveVolumeOptions have only name and dry_run.

    name: of the volume.
    disk: the device in the guest.
    volume_source: the claim, or DataVolume.
    dry_run: All to validate only.
    """

    name: str = ""
    disk: Document | None = None
    volume_source: Document | None = None
    dry_run: list[str] | None = None


def find(kind: Kind, subresource: str) -> str | None:
    """Return the verb of a subresource; None for one that is not served here."""
    return "update" if kind.resource in SINGULAR and subresource in SUBRESOURCES else None


async def answer(rest: Updates, call: Call) -> Response:
    """Add or remove a volume.  Raises NotFound, BadRequest, Conflict, Invalid."""
    if call.verb != "update":
        raise MethodNotAllowed(
            f'{call.verb} is not supported on {call.subresource} of resources of kind "VM"'
        )
    options = _options(call)
    request = _request(call, options)
    found = rest.store.latest(storage(call.kind), call.key)
    if found is None:
        raise not_found(call.kind, call.name)
    of_vm = call.kind.resource == VIRTUAL_MACHINE.resource
    desired = found.document()
    if of_vm:
        _add_request(call, request, desired)
    else:
        _apply(call, request, desired)
    ours = replace(
        call,
        user=SERVER,
        group="kubevirt.io",
        subresource="status" if of_vm else "",
        query=kubevirt_options.query(call, options.dry_run),
    )
    changed = await rest.evaluate_update(ours, found, desired)
    if changed is not None and "All" not in (options.dry_run or ()):
        await rest.put(ours, changed)
    return Response(status=202)


def _options(call: Call) -> Options:
    """Parse the body.  Raises BadRequest."""
    if not call.request.body.strip():
        raise BadRequest("Request with no body, a new name is expected as the request body")
    options = kubevirt_options.options(call, Options)
    adds = call.subresource == "addvolume"
    form = "AddVolumeOptions" if adds else "RemoveVolumeOptions"
    if not options.name:
        raise BadRequest(f"{form} requires name to be set")
    if adds and options.disk is None:
        raise BadRequest(f"{form} requires disk to not be nil")
    if adds and options.volume_source is None:
        raise BadRequest(f"{form} requires VolumeSource to not be nil")
    return options


def _request(call: Call, options: Options) -> Document:
    """Return the entry of ``status.volumeRequests``.  Raises Invalid."""
    if call.subresource == "removevolume":
        return {requests.REMOVE: {"name": options.name}}
    assert options.disk is not None
    source = {
        kind: {**value, "hotpluggable": True} if isinstance(value, dict) else value
        for kind, value in (options.volume_source or {}).items()
    }
    disk = {**options.disk, "name": options.name}
    request = {
        requests.ADD: {"name": options.name, "disk": disk, "volumeSource": source},
    }
    if causes := list(requests.faults(request)):
        raise call.kind.invalid(call.name, causes)
    return request


def _apply(call: Call, request: Document, vmi: Document) -> None:
    """Apply a request to a VMI's spec.  Raises Conflict, Invalid."""
    if at(vmi, "status", "phase") != "Running":
        raise _conflict(call, "VMI is not running")
    for owner in at(vmi, "metadata", "ownerReferences") or ():
        if owner.get("controller") and owner["kind"] == VIRTUAL_MACHINE.name:
            why = f"VirtualMachine {owner['name']} owns it: send the request to that"
            raise _conflict(call, why)
    vmi["spec"] = _applied(call, request, vmi["spec"], "spec")


def _add_request(call: Call, request: Document, vm: Document) -> None:
    """Add a request to a VirtualMachine's status; a removal replaces a pending addition."""
    pending: list[Document] = at(vm, "status", "volumeRequests") or []
    name, adds = requests.name_of(request), requests.ADD in request
    for other in pending:
        if requests.name_of(other) != name:
            continue
        if requests.REMOVE in other and adds:
            why = f"unable to add volume since a remove volume request for volume [{name}] already"
            raise _conflict(call, f"{why} exists and is still being processed")
        if requests.REMOVE in other:
            why = f"a remove volume request for volume [{name}] already exists"
            raise _conflict(call, f"{why} and is still being processed")
        if adds:
            raise _conflict(call, f"add volume request for volume [{name}] already exists")
    spec = vm["spec"]["template"]["spec"]
    for other in pending:
        spec = requests.applied(other, spec)
    _applied(call, request, spec, "spec.template.spec")
    kept = [other for other in pending if requests.name_of(other) != name]
    vm["status"] = {**(vm.get("status") or {}), "volumeRequests": [*kept, request]}


def _applied(call: Call, request: Document, spec: Document, path: str) -> Document:
    """Return a VMI's spec with a request applied.  Raises Conflict, Invalid."""
    if at(spec, "domain", "devices", "disableHotplug"):
        raise _conflict(call, f"{path}.domain.devices.disableHotplug is set: its disks stay")
    if why := requests.conflict(request, spec.get("volumes") or ()):
        raise _conflict(call, why)
    desired = requests.applied(request, spec)
    if causes := validate_spec(desired, path, warn=False).causes:
        raise call.kind.invalid(call.name, causes)
    return desired


def _conflict(call: Call, why: str) -> Conflict:
    return conflict(call.kind, call.name, why)
