"""KubeVirt's subresources of VirtualMachineInstance, in the group subresources.kubevirt.io.

Requests that cannot work by the VMI's status are rejected here, with KubeVirt's messages; the VMI's
node serves the others.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlencode

import msgspec

from corral.api.addresses import port_of
from corral.api.conditions import is_condition_true
from corral.api.errors import (
    ApiError,
    BadRequest,
    Conflict,
    Forbidden,
    MethodNotAllowed,
)
from corral.api.kind import Kind, at
from corral.api.kinds.kubevirt.kinds import VIRTUAL_MACHINE_INSTANCE
from corral.api.object import Document
from corral.api.time import parse_duration
from corral.server.request.call import Call
from corral.server.request.kubevirt_options import conflict, options, resource_text

GROUP: Final = "subresources.kubevirt.io"
VERSIONS: Final = ("v1", "v1alpha3")

_NOT_RUNNING = "VMI is not running"


class PlainError(ApiError):
    """An error that KubeVirt sends as plain text, with the code 500."""

    code = 500


Check = Callable[[Call, Document], Mapping[str, str] | None]
"""Raises ApiError for a request that cannot work; returns query parameters for the node."""


@dataclass(frozen=True, slots=True)
class VmiSubresource:
    """A subresource: its verb, its check, and whether it is a websocket (``stream``)."""

    verb: str
    check: Check
    stream: bool = False


def find(kind: Kind, subresource: str) -> VmiSubresource | None:
    """Return a subresource of VMIs; None if there is none of that name."""
    if kind.resource != "virtualmachineinstances.kubevirt.io":
        return None
    name, *port = subresource.split("/")
    if name == "portforward":
        return SUBRESOURCES[name] if len(port) in (1, 2) else None
    return SUBRESOURCES.get(subresource)


def node_path(call: Call, vmi: Document) -> tuple[str, str]:
    """Return the node of a VMI, and the path and query there.

    Raises ApiError if the subresource is not available.
    """
    subresource = find(call.kind, call.subresource)
    assert subresource is not None
    if call.verb != subresource.verb:
        raise MethodNotAllowed(
            f'{call.verb} is not supported on {call.subresource} of resources of kind "VMI"'
        )
    upgrade = call.request.headers.get("upgrade", "").lower()
    if subresource.stream and upgrade != "websocket":
        raise BadRequest(f"{call.subresource} is a websocket: the request has no upgrade")
    query = subresource.check(call, vmi)
    node = at(vmi, "status", "nodeName")
    if not node:
        raise BadRequest(_NOT_RUNNING)
    name, *segments = call.subresource.split("/")
    if name == "vnc" and segments:
        name, segments = call.subresource, []
    if name == "portforward":
        segments = [segments[0], *(segments[1:] or ["tcp"])]
    uid = vmi["metadata"]["uid"]
    path = "/".join(["", name, call.namespace, call.name, uid, *segments])
    return node, f"{path}?{urlencode(query)}" if query else path


# ------------------------------------------------------------------- checks


def _console(_: Call, vmi: Document) -> None:
    """Check the device before the phase: KubeVirt's client retries as long as the code is 400."""
    if at(vmi, "spec", "domain", "devices", "autoattachSerialConsole") is False:
        raise BadRequest("No serial consoles are present.")
    _stream(vmi)


def _vnc(call: Call, vmi: Document) -> Mapping[str, str] | None:
    if at(vmi, "spec", "domain", "devices", "autoattachGraphicsDevice") is False:
        raise BadRequest("No graphics devices are present.")
    _stream(vmi)
    return {name: "true" for name in ("preserveSession", "moveCursor") if _set(call, name)}


def _stream(vmi: Document) -> None:
    phase = at(vmi, "status", "phase")
    if phase == "Failed":
        raise _conflict(vmi, "VMI is in failed status")
    if phase != "Running":
        raise BadRequest(_NOT_RUNNING)


def _port(call: Call, vmi: Document) -> None:
    _, port, *protocol = call.subresource.split("/")
    if not port_of(port):
        raise BadRequest(f'port "{port[:20]}" is not a number from 1 to 65535')
    if protocol not in ([], ["tcp"], ["udp"]):
        raise BadRequest(f'protocol "{protocol[0][:20]}" is neither tcp nor udp')
    _stream(vmi)
    if is_condition_true(vmi, "Paused"):
        raise _conflict(vmi, "VMI is paused")
    if not at(vmi, "status", "interfaces"):
        raise BadRequest("no network interfaces are present")


def _guest(_: Call, vmi: Document) -> None:
    if at(vmi, "status", "phase") != "Running":
        raise PlainError(_conflict(vmi, _NOT_RUNNING).message)
    if is_condition_true(vmi, "Paused"):
        raise PlainError(_conflict(vmi, "VMI is paused").message)
    if not is_condition_true(vmi, "AgentConnected"):
        raise PlainError(_conflict(vmi, "VMI does not have guest agent connected").message)


def _running(_: Call, vmi: Document) -> None:
    if at(vmi, "status", "phase") != "Running":
        raise _conflict(vmi, _NOT_RUNNING)


def _pause(call: Call, vmi: Document) -> None:
    _running(call, vmi)
    if at(vmi, "spec", "livenessProbe") is not None:
        raise Forbidden(
            f"{_named(vmi)} is forbidden: "
            "Pausing VMIs with LivenessProbe is currently not supported"
        )
    if is_condition_true(vmi, "Paused"):
        raise _conflict(vmi, "VMI is already paused")


def _unpause(call: Call, vmi: Document) -> None:
    _running(call, vmi)
    if not is_condition_true(vmi, "Paused"):
        raise _conflict(vmi, "VMI is not paused")


def _softreboot(call: Call, vmi: Document) -> None:
    _running(call, vmi)
    if is_condition_true(vmi, "Paused"):
        raise _conflict(vmi, "VMI is paused")
    acpi = at(vmi, "spec", "domain", "features", "acpi", "enabled") is not False
    if not acpi and not is_condition_true(vmi, "AgentConnected"):
        neither = "VMI neither have the agent connected nor the ACPI feature enabled"
        raise _conflict(vmi, neither)


def _freeze(call: Call, vmi: Document) -> Mapping[str, str] | None:
    _running(call, vmi)
    timeout = options(call, Options).unfreeze_timeout
    return None if timeout is None else {"seconds": repr(duration_seconds(timeout))}


# ------------------------------------------------------------------ helpers


def dry_run(call: Call) -> bool:
    """Return whether a request is a dry run, which KubeVirt reads from the body."""
    return call.verb == "update" and "All" in (options(call, Options).dry_run or ())


class Options(msgspec.Struct, rename="camel"):
    """Options in the body: PauseOptions, FreezeUnfreezeTimeout and others.

    dry_run: All for a dry run.
    unfreeze_timeout: after how long a frozen guest is thawed by itself, such as 5m0s.
    """

    dry_run: list[str] | None = None
    unfreeze_timeout: str | None = None


def duration_seconds(text: str) -> float:
    """Parse a duration as Go writes it (``5m0s``, metav1.Duration).  Raises BadRequest."""
    try:
        return parse_duration(text)
    except ValueError as error:
        raise BadRequest(f"unfreezeTimeout: {error}") from None


def _set(call: Call, name: str) -> bool:
    return call.query.get(name, "") == "true"


def _named(vmi: Document) -> str:
    return resource_text(VIRTUAL_MACHINE_INSTANCE, vmi["metadata"]["name"])


def _conflict(vmi: Document, why: str) -> Conflict:
    return conflict(VIRTUAL_MACHINE_INSTANCE, vmi["metadata"]["name"], why)


def _unsupported(why: str) -> Check:
    def refuse(_call: Call, _machine: Document) -> None:
        raise BadRequest(why)

    return refuse


_NO_BACKUP = "backups of machines are not supported by this version"
_NO_SEV = "the memory of machines is not encrypted: launchSecurity is not supported"

SUBRESOURCES: Mapping[str, VmiSubresource] = {
    "console": VmiSubresource("get", _console, stream=True),
    "vnc": VmiSubresource("get", _vnc, stream=True),
    "vnc/screenshot": VmiSubresource("get", _vnc),
    "portforward": VmiSubresource("get", _port, stream=True),
    "guestosinfo": VmiSubresource("get", _guest),
    "userlist": VmiSubresource("get", _guest),
    "filesystemlist": VmiSubresource("get", _guest),
    "pause": VmiSubresource("update", _pause),
    "unpause": VmiSubresource("update", _unpause),
    "freeze": VmiSubresource("update", _freeze),
    "unfreeze": VmiSubresource("update", _running),
    "softreboot": VmiSubresource("update", _softreboot),
    "reset": VmiSubresource("update", _running),
    "usbredir": VmiSubresource("get", _unsupported("Not configured with USB Redirection")),
    "vsock": VmiSubresource("get", _unsupported("VSOCK is not attached.")),
    "objectgraph": VmiSubresource(
        "get", _unsupported("the object graph is not supported by this version")
    ),
    "backup": VmiSubresource("update", _unsupported(_NO_BACKUP)),
    "redefine-checkpoint": VmiSubresource("update", _unsupported(_NO_BACKUP)),
    "sev/fetchcertchain": VmiSubresource("get", _unsupported(_NO_SEV)),
    "sev/querylaunchmeasurement": VmiSubresource("get", _unsupported(_NO_SEV)),
    "sev/setupsession": VmiSubresource("update", _unsupported(_NO_SEV)),
    "sev/injectlaunchsecret": VmiSubresource("update", _unsupported(_NO_SEV)),
}
"""By path below a VMI; a port follows ``portforward``."""
