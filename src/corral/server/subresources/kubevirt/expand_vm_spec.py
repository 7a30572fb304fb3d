"""``expand-vm-spec``: returns a VirtualMachine with its instance type and preference applied.

The VirtualMachine is in the body, and is not stored (KubeVirt's virt-api, rest/expand.go).
"""

from typing import Final

from corral.api.encoding import encode
from corral.api.errors import BadRequest, Cause, Details, MethodNotAllowed, shortened
from corral.api.kinds.kubevirt.kinds import VIRTUAL_MACHINE as VM
from corral.api.object import Document
from corral.api.request import Response
from corral.api.schema import schema_for
from corral.server.admission.instancetypes import Instancetypes
from corral.server.registry.rest import Updates
from corral.server.request import body
from corral.server.request.call import Call, json_response
from corral.server.request.route import Route

NAME: Final = "expand-vm-spec"


def is_requested(route: Route) -> bool:
    """Return whether a path is this one: its name stands in the place of a resource's."""
    return route.plural == NAME and bool(route.namespace) and not route.name


async def answer(rest: Updates, call: Call) -> Response:
    """Return the expanded VirtualMachine.  Raises BadRequest and MethodNotAllowed."""
    if call.verb != "update":
        raise MethodNotAllowed(f"{call.verb} is not supported on {NAME}")
    vm = body.read(call)
    _require_kind(vm)
    schema = schema_for(VM)
    unknown = [Cause(path, f"{path} in body is a forbidden property") for path in schema.prune(vm)]
    if causes := [*unknown, *schema.check(vm)]:
        details = Details(causes=tuple(causes))
        raise BadRequest("Object is not a valid VirtualMachine", details=details)
    metadata = vm["metadata"] = vm.get("metadata") or {}
    if metadata.get("namespace") not in (None, "", call.namespace):
        raise BadRequest(f"VM namespace must be empty or {call.namespace}")
    metadata["namespace"] = call.namespace
    return json_response(encode(Instancetypes(rest.store).expanded(vm, BadRequest)))


def _require_kind(vm: Document) -> None:
    """Refuse an object of another kind; default its apiVersion and kind."""
    kind = vm.get("kind") or VM.name
    version = vm.get("apiVersion") or VM.api_version
    served = [f"{VM.group}/{each.name}" for each in VM.versions]
    if kind != VM.name or version not in served:
        actual = shortened(f"{kind} of {version}")
        raise BadRequest(
            f"Object is not a valid VirtualMachine: it is a {actual}: send a "
            f"{VM.name} of {' or '.join(served)}"
        )
    vm["apiVersion"], vm["kind"] = version, kind
