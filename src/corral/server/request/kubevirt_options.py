"""Options and errors of KubeVirt's subresources."""

from collections.abc import Iterable, Mapping
from typing import TypeVar

import msgspec

from corral.api.encoding import decode_as
from corral.api.errors import BadRequest, Conflict, Details, NotFound
from corral.api.kind import Kind
from corral.api.kinds.kubevirt.kinds import VIRTUAL_MACHINE, VIRTUAL_MACHINE_INSTANCE
from corral.server.request.call import Call

Options = TypeVar("Options", bound=msgspec.Struct)

SINGULAR = {
    VIRTUAL_MACHINE.resource: "virtualmachine",
    VIRTUAL_MACHINE_INSTANCE.resource: "virtualmachineinstance",
}
"""KubeVirt's subresources name the resource in the singular in errors."""


def options(call: Call, type_: type[Options]) -> Options:
    """Decode the optional body of a request.  Raises BadRequest."""
    if not call.request.body.strip():
        return type_()
    try:
        return decode_as(call.request.body, type_)
    except msgspec.DecodeError as error:
        raise BadRequest(f"Can not unmarshal Request body to struct, error: {error}") from error


def query(call: Call, dry_run: Iterable[str] | None) -> Mapping[str, str]:
    """Return the query for the updates that a request makes, with its dryRun."""
    return {**call.query, "dryRun": "All"} if "All" in (dry_run or ()) else call.query


def resource_text(kind: Kind, name: str) -> str:
    """Return an object's name in errors."""
    return f'{SINGULAR[kind.resource]}.kubevirt.io "{name}"'


def not_found(kind: Kind, name: str) -> NotFound:
    """Return the error for a missing object."""
    return NotFound(f"{resource_text(kind, name)} not found", details=_details(kind, name))


def conflict(kind: Kind, name: str, why: str) -> Conflict:
    """Return the error for an object whose state excludes the operation."""
    message = f"Operation cannot be fulfilled on {resource_text(kind, name)}: {why}"
    return Conflict(message, details=_details(kind, name))


def _details(kind: Kind, name: str) -> Details:
    return Details(name=name, group="kubevirt.io", kind=SINGULAR[kind.resource])
