"""Forwarding of requests to nodes: subresources of pods, of VMIs, and of nodes themselves.

The server finds the object and its node, rejects requests that cannot work with KubeVirt's
messages, and returns the kubelet of the node, an ASGI app to which ``asgi`` passes the connection.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from starlette.types import ASGIApp

from corral.api.errors import BadRequest, MethodNotAllowed, NotFound, Unavailable
from corral.api.kind import Kind, at
from corral.api.kinds.vmi.derived import COMPUTE
from corral.api.object import Document
from corral.api.request import Response
from corral.server.node_proxy import vmi_subresources
from corral.server.request import kubevirt_options
from corral.server.request.call import Call, storage
from corral.server.strategy import object_meta
from corral.store import Objects

Nodes = Callable[[str], ASGIApp | None]
"""The kubelet of a node by name; None for an unreachable node."""


@dataclass(slots=True, kw_only=True)
class Forward(Response):
    """A response that the app gives: the request is forwarded to it, with this path and query.

    state: what the app learns of the request beside it, in the ``state`` of its scope.
    """

    app: ASGIApp
    path: str
    query: str
    state: Mapping[str, str] = field(default_factory=dict)


def serves(kind: Kind, subresource: str) -> bool:
    """Return whether requests to a subresource of pods or nodes are forwarded."""
    return subresource in _SUBRESOURCES.get(kind.resource, ())


async def answer(store: Objects, nodes: Nodes, call: Call) -> Response:
    """Return where to forward a request.  Raises NotFound, BadRequest, Conflict, Unavailable."""
    is_vmi = vmi_subresources.find(call.kind, call.subresource) is not None
    try:
        document = object_meta.existing(store, call.kind, storage(call.kind), call.key).document()
    except NotFound:
        if is_vmi:
            raise kubevirt_options.not_found(call.kind, call.name) from None
        raise
    if is_vmi:
        node, path = vmi_subresources.node_path(call, document)
        if vmi_subresources.dry_run(call):
            return Response()
    else:
        node, path = _SUBRESOURCES[call.kind.resource][call.subresource](call, document)
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
    container_names, init_names = (
        [each.get("name", "") for each in at(pod, "spec", part) or []]
        for part in ("containers", "initContainers")
    )
    requested = call.query.get("container", "")
    if requested and requested not in (*container_names, *init_names):
        raise BadRequest(f"container {requested} is not valid for pod {call.name}")
    if not requested and len(container_names) > 1:
        others = f" or one of the init containers: [{' '.join(init_names)}]" if init_names else ""
        raise BadRequest(
            f"a container name must be specified for pod {call.name}, choose one of: "
            f"[{' '.join(container_names)}]{others}"
        )
    return requested or (container_names[0] if container_names else "")


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
    """Return the node of a running pod.  Raises BadRequest, also without an upgrade.

    kubectl before 1.31 upgrades to SPDY, by POST; later ones fall back to that if the websocket
    fails, and show the error of the second request.
    """
    node, phase = at(pod, "spec", "nodeName"), at(pod, "status", "phase")
    if not node or phase != "Running":
        raise BadRequest(
            f"unable to {call.subresource}: pod {call.name} is not running. "
            f"Current status={phase or 'Pending'}"
        )
    if call.request.headers.get("upgrade", "").lower() not in _UPGRADES:
        raise BadRequest(
            f"{call.subresource} needs an upgrade to a websocket or SPDY/3.1: "
            "Upgrade request required"
        )
    return str(node)


def _attach(call: Call, pod: Document) -> tuple[str, str]:
    """Raise BadRequest: a VMI has no container to attach to, but a console."""
    owners: list[Document] = at(pod, "metadata", "ownerReferences") or []
    owner = owners[0]["name"] if owners else "NAME"
    raise BadRequest(
        f"{call.subresource} is not supported: the pod {call.name} is a virtual machine; "
        f"its console opens with: corral console {owner} -n {call.namespace}"
    )


def _proxy(call: Call, _node: Document) -> tuple[str, str]:
    """Forward reads of a node's metrics; exec and the like are subresources of pods only."""
    if call.verb != "get":
        raise MethodNotAllowed('only get is supported on proxy of resources of kind "Node"')
    return call.name, call.subresource.removeprefix(PROXY)


_UPGRADES = ("websocket", "spdy/3.1")

_Resolve = Callable[[Call, Document], tuple[str, str]]
"""Returns the node, and the path at its kubelet."""

PROXY = "proxy"
_SUBRESOURCES: Mapping[str, Mapping[str, _Resolve]] = {
    "pods": {"log": _log, "exec": _exec, "attach": _attach, "portforward": _port_forward},
    "nodes": dict.fromkeys(
        (f"{PROXY}/{path}" for path in ("metrics", "metrics/resource", "stats/summary")), _proxy
    ),
}
