"""How KubeVirt's subresources read what they are told, and in which words they refuse."""

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
"""KubeVirt names the resource in the singular where its subresources refuse."""


def options(call: Call, form: type[Options]) -> Options:
    """The body of a request, which may be left out.  Raises BadRequest."""
    if not call.request.body.strip():
        return form()
    try:
        return decode_as(call.request.body, form)
    except msgspec.DecodeError as error:
        raise BadRequest(f"Can not unmarshal Request body to struct, error: {error}") from error


def query(call: Call, dry_run: Iterable[str] | None) -> Mapping[str, str]:
    """The query of the changes that a request makes: they are tried only if it says so."""
    return {**call.query, "dryRun": "All"} if "All" in (dry_run or ()) else call.query


def named(kind: Kind, name: str) -> str:
    """An object as a refusal names it."""
    return f'{SINGULAR[kind.resource]}.kubevirt.io "{name}"'


def not_found(kind: Kind, name: str) -> NotFound:
    """There is no such object."""
    return NotFound(f"{named(kind, name)} not found", details=_details(kind, name))


def conflict(kind: Kind, name: str, why: str) -> Conflict:
    """The object is not such that this could be done."""
    message = f"Operation cannot be fulfilled on {named(kind, name)}: {why}"
    return Conflict(message, details=_details(kind, name))


def _details(kind: Kind, name: str) -> Details:
    return Details(name=name, group="kubevirt.io", kind=SINGULAR[kind.resource])
