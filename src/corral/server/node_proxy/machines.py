"""What one does with machines: KubeVirt's subresources of VirtualMachineInstance.

They are served under a group of their own, subresources.kubevirt.io.  What cannot work, by what
the instance's status tells, is refused here in KubeVirt's words; the instance's node does the rest.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlencode

import msgspec

from corral.api.addresses import port_of
from corral.api.conditions import get_condition
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
    """A refusal that KubeVirt sends as plain text, and as a fault of its own."""

    code = 500


Check = Callable[[Call, Document], Mapping[str, str] | None]
"""Refuses what cannot work; answers what the node is asked besides, as a query."""


@dataclass(frozen=True, slots=True)
class Door:
    """One subresource: how it is asked for, and what is refused.

    ``stream``: it is a websocket.
    """

    verb: str
    check: Check
    stream: bool = False


def find(kind: Kind, subresource: str) -> Door | None:
    """The door of that name, where machines have it."""
    if kind.resource != "virtualmachineinstances.kubevirt.io":
        return None
    name, *port = subresource.split("/")
    if name == "portforward":
        return DOORS[name] if len(port) in (1, 2) else None
    return DOORS.get(subresource)


def node_path(call: Call, machine: Document) -> tuple[str, str]:
    """The node of a machine, and the path of the door there with its query.

    Raises what says that the door does not open.
    """
    door = find(call.kind, call.subresource)
    assert door is not None
    if call.verb != door.verb:
        raise MethodNotAllowed(
            f'{call.verb} is not supported on {call.subresource} of resources of kind "VMI"'
        )
    upgrade = call.request.headers.get("upgrade", "").lower()
    if door.stream and upgrade != "websocket":
        raise BadRequest(
            f"{call.subresource} is a websocket: the request does not ask for an upgrade"
        )
    query = door.check(call, machine)
    node = at(machine, "status", "nodeName")
    if not node:
        raise BadRequest(_NOT_RUNNING)
    name, *below = call.subresource.split("/")
    if name == "vnc" and below:
        name, below = call.subresource, []
    if name == "portforward":
        below = [below[0], *(below[1:] or ["tcp"])]
    uid = machine["metadata"]["uid"]
    path = "/".join(["", name, call.namespace, call.name, uid, *below])
    return node, f"{path}?{urlencode(query)}" if query else path


# ------------------------------------------------------------------- checks


def _console(_: Call, machine: Document) -> None:
    """In this order: KubeVirt's client tries again for as long as the code is 400."""
    if at(machine, "spec", "domain", "devices", "autoattachSerialConsole") is False:
        raise BadRequest("No serial consoles are present.")
    _stream(machine)


def _screen(call: Call, machine: Document) -> Mapping[str, str] | None:
    if at(machine, "spec", "domain", "devices", "autoattachGraphicsDevice") is False:
        raise BadRequest("No graphics devices are present.")
    _stream(machine)
    return {name: "true" for name in ("preserveSession", "moveCursor") if _set(call, name)}


def _stream(machine: Document) -> None:
    phase = at(machine, "status", "phase")
    if phase == "Failed":
        raise _conflict(machine, "VMI is in failed status")
    if phase != "Running":
        raise BadRequest(_NOT_RUNNING)


def _port(call: Call, machine: Document) -> None:
    _, port, *protocol = call.subresource.split("/")
    if not port_of(port):
        raise BadRequest(f'port "{port[:20]}" is not a number from 1 to 65535')
    if protocol not in ([], ["tcp"], ["udp"]):
        raise BadRequest(f'protocol "{protocol[0][:20]}" is neither tcp nor udp')
    _stream(machine)
    if _holds(machine, "Paused"):
        raise _conflict(machine, "VMI is paused")
    if not at(machine, "status", "interfaces"):
        raise BadRequest("no network interfaces are present")


def _guest(_: Call, machine: Document) -> None:
    if at(machine, "status", "phase") != "Running":
        raise PlainError(_conflict(machine, _NOT_RUNNING).message)
    if _holds(machine, "Paused"):
        raise PlainError(_conflict(machine, "VMI is paused").message)
    if not _holds(machine, "AgentConnected"):
        raise PlainError(_conflict(machine, "VMI does not have guest agent connected").message)


def _running(_: Call, machine: Document) -> None:
    if at(machine, "status", "phase") != "Running":
        raise _conflict(machine, _NOT_RUNNING)


def _pause(call: Call, machine: Document) -> None:
    _running(call, machine)
    if at(machine, "spec", "livenessProbe") is not None:
        raise Forbidden(
            f"{_named(machine)} is forbidden: "
            "Pausing VMIs with LivenessProbe is currently not supported"
        )
    if _holds(machine, "Paused"):
        raise _conflict(machine, "VMI is already paused")


def _unpause(call: Call, machine: Document) -> None:
    _running(call, machine)
    if not _holds(machine, "Paused"):
        raise _conflict(machine, "VMI is not paused")


def _softreboot(call: Call, machine: Document) -> None:
    _running(call, machine)
    if _holds(machine, "Paused"):
        raise _conflict(machine, "VMI is paused")
    acpi = at(machine, "spec", "domain", "features", "acpi", "enabled") is not False
    if not acpi and not _holds(machine, "AgentConnected"):
        neither = "VMI neither have the agent connected nor the ACPI feature enabled"
        raise _conflict(machine, neither)


def _freeze(call: Call, machine: Document) -> Mapping[str, str] | None:
    _running(call, machine)
    timeout = options(call, Options).unfreeze_timeout
    return None if timeout is None else {"seconds": repr(duration_seconds(timeout))}


# ------------------------------------------------------------------ helpers


def dry_run(call: Call) -> bool:
    """Whether nothing is to happen: KubeVirt takes that wish in the body."""
    return call.verb == "update" and "All" in (options(call, Options).dry_run or ())


class Options(msgspec.Struct, rename="camel"):
    """What KubeVirt takes in the body: PauseOptions, FreezeUnfreezeTimeout and others.

    dry_run: All to try it only.
    unfreeze_timeout: after how long a frozen guest goes on by itself, such as 5m0s.
    """

    dry_run: list[str] | None = None
    unfreeze_timeout: str | None = None


def duration_seconds(text: str) -> float:
    """A duration as Go writes it (``5m0s``, metav1.Duration).  Raises BadRequest."""
    try:
        return parse_duration(text)
    except ValueError as error:
        raise BadRequest(f"unfreezeTimeout: {error}") from None


def _holds(machine: Document, condition: str) -> bool:
    found = get_condition(at(machine, "status", "conditions") or [], condition)
    return found is not None and found.get("status") == "True"


def _set(call: Call, name: str) -> bool:
    return call.query.get(name, "") == "true"


def _named(machine: Document) -> str:
    return resource_text(VIRTUAL_MACHINE_INSTANCE, machine["metadata"]["name"])


def _conflict(machine: Document, why: str) -> Conflict:
    return conflict(VIRTUAL_MACHINE_INSTANCE, machine["metadata"]["name"], why)


def _never(why: str) -> Check:
    def refuse(_call: Call, _machine: Document) -> None:
        raise BadRequest(why)

    return refuse


_NO_BACKUP = "backups of machines are not supported by this version"
_NO_SEV = "the memory of machines is not encrypted: launchSecurity is not supported"

DOORS: Mapping[str, Door] = {
    "console": Door("get", _console, stream=True),
    "vnc": Door("get", _screen, stream=True),
    "vnc/screenshot": Door("get", _screen),
    "portforward": Door("get", _port, stream=True),
    "guestosinfo": Door("get", _guest),
    "userlist": Door("get", _guest),
    "filesystemlist": Door("get", _guest),
    "pause": Door("update", _pause),
    "unpause": Door("update", _unpause),
    "freeze": Door("update", _freeze),
    "unfreeze": Door("update", _running),
    "softreboot": Door("update", _softreboot),
    "reset": Door("update", _running),
    "usbredir": Door("get", _never("Not configured with USB Redirection")),
    "vsock": Door("get", _never("VSOCK is not attached.")),
    "objectgraph": Door("get", _never("the object graph is not supported by this version")),
    "backup": Door("update", _never(_NO_BACKUP)),
    "redefine-checkpoint": Door("update", _never(_NO_BACKUP)),
    "sev/fetchcertchain": Door("get", _never(_NO_SEV)),
    "sev/querylaunchmeasurement": Door("get", _never(_NO_SEV)),
    "sev/setupsession": Door("update", _never(_NO_SEV)),
    "sev/injectlaunchsecret": Door("update", _never(_NO_SEV)),
}
"""What there is, by the path below a machine; a port is named behind ``portforward``."""
