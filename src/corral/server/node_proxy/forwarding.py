"""What nodes answer: the doors of pods, of machines, and of the nodes themselves.

The server finds the object and its node, refuses what cannot work in KubeVirt's words, and names
the node's agent, an ASGI app, that the adapter hands the connection to.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from starlette.types import ASGIApp

from corral.api.errors import BadRequest, MethodNotAllowed, NotFound, Unavailable
from corral.api.kind import Kind, at
from corral.api.kinds.vmi.derived import COMPUTE
from corral.api.object import Document
from corral.api.request import Response
from corral.server.node_proxy import machines
from corral.server.request import kubevirt_options
from corral.server.request.call import Call, storage
from corral.server.strategy import object_meta
from corral.store import Store

Nodes = Callable[[str], ASGIApp | None]
"""The agent of a node by the node's name; None for a node that cannot be reached."""


@dataclass(slots=True, kw_only=True)
class Forward(Response):
    """Not an answer yet: the connection goes on to this app, under this path and query."""

    app: ASGIApp
    path: str
    query: str


def serves(kind: Kind, subresource: str) -> bool:
    """Whether a node answers a subresource of pods, or of itself."""
    return subresource in _DOORS.get(kind.resource, ())


async def answer(store: Store, nodes: Nodes, call: Call) -> Response:
    """Where to forward a request.  Raises NotFound, BadRequest, Conflict, Unavailable."""
    machine = machines.find(call.kind, call.subresource) is not None
    try:
        document = object_meta.existing(store, call.kind, storage(call.kind), call.key).document()
    except NotFound:
        if machine:
            raise kubevirt_options.not_found(call.kind, call.name) from None
        raise
    if machine:
        node, path = machines.node_path(call, document)
        if machines.dry_run(call):
            return Response()
    else:
        node, path = _DOORS[call.kind.resource][call.subresource](call, document)
    agent = nodes(node)
    if agent is None:
        raise Unavailable(f'the agent of node "{node}" cannot be reached')
    path, _, query = path.partition("?")
    return Forward(app=agent, path=path, query=query or call.request.query)


def _log(call: Call, pod: Document) -> tuple[str, str]:
    if call.verb != "get":
        raise MethodNotAllowed('only get is supported on log of resources of kind "Pod"')
    container = _container(call, pod)
    node = at(pod, "spec", "nodeName")
    if not node:
        raise BadRequest(
            f'container "{container}" in pod "{call.name}" is waiting to start: '
            "the pod is not on a node yet"
        )
    return node, f"/containerLogs/{call.namespace}/{call.name}/{container}"


def _container(call: Call, pod: Document) -> str:
    names, first = (
        [each.get("name", "") for each in at(pod, "spec", part) or []]
        for part in ("containers", "initContainers")
    )
    asked = call.query.get("container", "")
    if asked and asked not in (*names, *first):
        raise BadRequest(f"container {asked} is not valid for pod {call.name}")
    if not asked and len(names) > 1:
        others = f" or one of the init containers: [{' '.join(first)}]" if first else ""
        raise BadRequest(
            f"a container name must be specified for pod {call.name}, choose one of: "
            f"[{' '.join(names)}]{others}"
        )
    return asked or (names[0] if names else "")


def _exec(call: Call, pod: Document) -> tuple[str, str]:
    container = _container(call, pod)
    if container != COMPUTE:
        raise BadRequest(
            f"container {container} stands for a part of the machine only; commands are run in "
            f"{COMPUTE}, by the guest's agent"
        )
    if not call.query.get("command"):
        raise BadRequest("you must specify at least one command for the container")
    return _stream(call, pod), f"/exec/{call.namespace}/{call.name}/{container}"


def _port_forward(call: Call, pod: Document) -> tuple[str, str]:
    return _stream(call, pod), f"/portForward/{call.namespace}/{call.name}"


def _stream(call: Call, pod: Document) -> str:
    """The node of a pod that is to be streamed to; refuses one that does not run.

    kubectl before 1.31 asks for SPDY, by POST; later ones ask again so where they get no websocket,
    and show what they are told then.
    """
    node, phase = at(pod, "spec", "nodeName"), at(pod, "status", "phase")
    if not node or phase != "Running":
        raise BadRequest(
            f"unable to {call.subresource}: pod {call.name} is not running. "
            f"Current status={phase or 'Pending'}"
        )
    if call.request.headers.get("upgrade", "").lower() not in _UPGRADES:
        raise BadRequest(
            f"{call.subresource} is a websocket or SPDY/3.1, for which this request does not ask: "
            "Upgrade request required"
        )
    return str(node)


def _no_way_in(call: Call, pod: Document) -> tuple[str, str]:
    """There is no container to attach to: what a machine prints and reads is its console."""
    owners: list[Document] = at(pod, "metadata", "ownerReferences") or []
    owner = owners[0]["name"] if owners else "NAME"
    raise BadRequest(
        f"{call.subresource} is not supported: the pod {call.name} is a virtual machine; "
        f"its console opens with: corral console {owner} -n {call.namespace}"
    )


def _proxy(call: Call, _node: Document) -> tuple[str, str]:
    """What a node tells of itself and its pods; its doors into pods are below the pods only."""
    if call.verb != "get":
        raise MethodNotAllowed('only get is supported on proxy of resources of kind "Node"')
    return call.name, call.subresource.removeprefix(PROXY)


_UPGRADES = ("websocket", "spdy/3.1")

_Door = Callable[[Call, Document], tuple[str, str]]
"""Finds the node, and the path at its agent."""

PROXY = "proxy"
_DOORS: Mapping[str, Mapping[str, _Door]] = {
    "pods": {"log": _log, "exec": _exec, "attach": _no_way_in, "portforward": _port_forward},
    "nodes": dict.fromkeys(
        (f"{PROXY}/{path}" for path in ("metrics", "metrics/resource", "stats/summary")), _proxy
    ),
}
