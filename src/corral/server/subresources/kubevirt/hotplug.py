"""addvolume and removevolume: disks of machines that run, by KubeVirt's subresources.

On a machine they change its spec, which its node follows; on a VirtualMachine they are noted as
requests in its status, which its controller fulfils in its template and in its machine.
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
from corral.server.registry.rest import Rest
from corral.server.request import kubevirt_options
from corral.server.request.call import Call, storage
from corral.server.request.kubevirt_options import SINGULAR, conflict, not_found
from corral.server.subresources.kubevirt.virtual_machines import SERVER

SUBRESOURCES: Final = ("addvolume", "removevolume")


class Options(msgspec.Struct, rename="camel"):
    """KubeVirt's AddVolumeOptions, and its RemoveVolumeOptions, which have the first and the last.

    name: of the volume.
    disk: how the guest sees it.
    volume_source: the claim, or DataVolume.
    dry_run: All to try it only.
    """

    name: str = ""
    disk: Document | None = None
    volume_source: Document | None = None
    dry_run: list[str] | None = None


def find(kind: Kind, subresource: str) -> str | None:
    """The verb of a subresource, where it is one of these."""
    return "update" if kind.resource in SINGULAR and subresource in SUBRESOURCES else None


async def answer(rest: Rest, call: Call) -> Response:
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
    wanted = found.document()
    if of_vm:
        _ask(call, request, wanted)
    else:
        _change(call, request, wanted)
    ours = replace(
        call,
        user=SERVER,
        group="kubevirt.io",
        subresource="status" if of_vm else "",
        query=kubevirt_options.query(call, options.dry_run),
    )
    changed = await rest.evaluate_update(ours, found, wanted)
    if changed is not None and "All" not in (options.dry_run or ()):
        await rest.store.write(storage(call.kind), call.key, changed)
    return Response(status=202)


def _options(call: Call) -> Options:
    """Raises BadRequest."""
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
    """What is asked for, as VirtualMachines keep it.  Raises Invalid."""
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


def _change(call: Call, request: Document, machine: Document) -> None:
    """Fulfil a request in a machine's own spec."""
    if at(machine, "status", "phase") != "Running":
        raise _conflict(call, "VMI is not running")
    for owner in at(machine, "metadata", "ownerReferences") or ():
        if owner.get("controller") and owner["kind"] == VIRTUAL_MACHINE.name:
            why = f"it has the volumes of VirtualMachine {owner['name']}: ask that in its place"
            raise _conflict(call, why)
    machine["spec"] = _judged(call, request, machine["spec"], "spec")


def _ask(call: Call, request: Document, vm: Document) -> None:
    """Note a request in a VirtualMachine's status; to remove what is not added yet is one, too."""
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
    _judged(call, request, spec, "spec.template.spec")
    kept = [other for other in pending if requests.name_of(other) != name]
    vm["status"] = {**(vm.get("status") or {}), "volumeRequests": [*kept, request]}


def _judged(call: Call, request: Document, spec: Document, path: str) -> Document:
    """A machine's spec with a request fulfilled.  Raises Conflict, Invalid."""
    if at(spec, "domain", "devices", "disableHotplug"):
        raise _conflict(call, f"{path}.domain.devices.disableHotplug is set: its disks stay")
    if why := requests.conflict(request, spec.get("volumes") or ()):
        raise _conflict(call, why)
    wanted = requests.applied(request, spec)
    if causes := validate_spec(wanted, path, warn=False).causes:
        raise call.kind.invalid(call.name, causes)
    return wanted


def _conflict(call: Call, why: str) -> Conflict:
    return conflict(call.kind, call.name, why)
