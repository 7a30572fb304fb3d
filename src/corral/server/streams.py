"""What streams from a machine: the log of its pod, and its console.

The server finds the object and its node, refuses what cannot work in KubeVirt's words, and names
the node's agent, an ASGI app, that the adapter hands the connection to.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from starlette.types import ASGIApp

from corral.api.errors import BadRequest, MethodNotAllowed, Unavailable
from corral.api.kind import Kind, at
from corral.api.object import Document
from corral.api.wire import Response
from corral.server import identity
from corral.server.call import Call, storage
from corral.store import Store

Nodes = Callable[[str], ASGIApp | None]
"""The agent of a node by the node's name; None for a node that cannot be reached."""

MACHINE_GROUP = "subresources.kubevirt.io"
"""The group under which KubeVirt serves what one does with machines."""


@dataclass(slots=True, kw_only=True)
class Forward(Response):
    """Not an answer yet: the connection goes on to this app, under this path."""

    app: ASGIApp
    path: str


def serves(kind: Kind, subresource: str) -> bool:
    """Whether a subresource of a kind is a stream."""
    return (kind.resource, subresource) in _STREAMS


async def answer(store: Store, nodes: Nodes, call: Call) -> Response:
    """Where to forward a stream.  Raises NotFound, BadRequest, Conflict, Unavailable."""
    document = identity.existing(store, call.kind, storage(call.kind), call.key).document()
    node, path = _STREAMS[call.kind.resource, call.subresource](call, document)
    if call.verb != "get":
        raise MethodNotAllowed(
            f'only get is supported on {call.subresource} of resources of kind "{call.kind.name}"'
        )
    agent = nodes(node)
    if agent is None:
        raise Unavailable(f'the agent of node "{node}" cannot be reached')
    return Forward(app=agent, path=path)


def _log(call: Call, pod: Document) -> tuple[str, str]:
    container = _container(call, pod)
    node = at(pod, "spec", "nodeName")
    if not node:
        raise BadRequest(
            f'container "{container}" in pod "{call.name}" is waiting to start: '
            "the pod is not on a node yet"
        )
    return node, f"/containerLogs/{call.namespace}/{call.name}/{container}"


def _container(call: Call, pod: Document) -> str:
    names = [each.get("name", "") for each in at(pod, "spec", "containers") or []]
    asked = call.query.get("container", "")
    if asked and asked not in names:
        raise BadRequest(f"container {asked} is not valid for pod {call.name}")
    if not asked and len(names) > 1:
        raise BadRequest(
            f"a container name must be specified for pod {call.name}, choose one of: "
            f"[{' '.join(names)}]"
        )
    return asked or (names[0] if names else "")


def _console(call: Call, machine: Document) -> tuple[str, str]:
    """KubeVirt checks in this order, and its client tries again for as long as the code is 400."""
    if call.request.headers.get("upgrade", "").lower() != "websocket":
        raise BadRequest("the console is a websocket: the request does not ask for an upgrade")
    if at(machine, "spec", "domain", "devices", "autoattachSerialConsole") is False:
        raise BadRequest("No serial consoles are present.")
    phase = at(machine, "status", "phase")
    if phase == "Failed":
        raise identity.conflict(call.kind, call.name, "VMI is in failed status")
    node = at(machine, "status", "nodeName")
    if phase != "Running" or not node:
        raise BadRequest("VMI is not running")
    return node, f"/console/{call.namespace}/{call.name}/{machine['metadata']['uid']}"


def _no_way_in(call: Call, pod: Document) -> tuple[str, str]:
    """The pod of a machine has no containers, and its guest is not reached through the API yet."""
    owners: list[Document] = at(pod, "metadata", "ownerReferences") or []
    owner = owners[0]["name"] if owners else "NAME"
    raise BadRequest(
        f"{call.subresource} is not supported: the pod {call.name} is a virtual machine; "
        f"its console opens with: corral console {owner} -n {call.namespace}"
    )


_STREAMS: Mapping[tuple[str, str], Callable[[Call, Document], tuple[str, str]]] = {
    ("pods", "log"): _log,
    ("pods", "exec"): _no_way_in,
    ("pods", "attach"): _no_way_in,
    ("pods", "portforward"): _no_way_in,
    ("virtualmachineinstances.kubevirt.io", "console"): _console,
}
