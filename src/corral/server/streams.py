"""What nodes answer: the doors of pods, and of machines.

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
from corral.server import identity, machines
from corral.server.call import Call, storage
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
    """Whether a node answers a subresource of pods."""
    return kind.resource == "pods" and subresource in _OF_PODS


async def answer(store: Store, nodes: Nodes, call: Call) -> Response:
    """Where to forward a request.  Raises NotFound, BadRequest, Conflict, Unavailable."""
    document = identity.existing(store, call.kind, storage(call.kind), call.key).document()
    if machines.find(call.kind, call.subresource) is not None:
        node, path = machines.node_path(call, document)
        if machines.dry_run(call):
            return Response()
    else:
        node, path = _OF_PODS[call.subresource](call, document)
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


def _no_way_in(call: Call, pod: Document) -> tuple[str, str]:
    """The pod of a machine has no containers, and its guest is not reached through the API yet."""
    owners: list[Document] = at(pod, "metadata", "ownerReferences") or []
    owner = owners[0]["name"] if owners else "NAME"
    raise BadRequest(
        f"{call.subresource} is not supported: the pod {call.name} is a virtual machine; "
        f"its console opens with: corral console {owner} -n {call.namespace}"
    )


_OF_PODS: Mapping[str, Callable[[Call, Document], tuple[str, str]]] = {
    "log": _log,
    "exec": _no_way_in,
    "attach": _no_way_in,
    "portforward": _no_way_in,
}
