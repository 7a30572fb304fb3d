"""Dispatch of requests for subresources: to this server's handlers, or to a VMI's node."""

from collections.abc import Awaitable, Callable

from corral.api.kind import Kind
from corral.api.kinds import KindTable
from corral.api.kinds.kubevirt.kinds import VIRTUAL_MACHINE
from corral.api.request import Request, Response, User
from corral.server.node_proxy import forwarding, vmi_subresources
from corral.server.node_proxy.forwarding import Nodes
from corral.server.registry.rest import Rest, Updates
from corral.server.request import query, route
from corral.server.request.call import Call
from corral.server.request.route import Route
from corral.server.subresources import kubernetes_subresources
from corral.server.subresources.kubevirt import (
    evacuation,
    expand_vm_spec,
    hotplug,
    virtual_machines,
)

Find = Callable[[Kind, str], object]
"""Returns a subresource of a kind; None where the kind does not have it."""
AnswerSubresource = Callable[[Updates, Nodes, Call], Awaitable[Response]]

_KUBEVIRT: tuple[tuple[Find, AnswerSubresource], ...] = (
    (hotplug.find, lambda rest, _nodes, call: hotplug.answer(rest, call)),
    (evacuation.find, lambda rest, _nodes, call: evacuation.cancel(rest, call)),
    (virtual_machines.find, virtual_machines.answer),
    (vmi_subresources.find, lambda rest, nodes, call: forwarding.answer(rest.store, nodes, call)),
)
"""Handlers of subresources.kubevirt.io: the first whose ``Find`` returns something answers."""


def kind_at(kinds: KindTable, parsed_route: Route) -> Kind | None:
    """Return the kind of a path; None where its version or subresource is not served."""
    if parsed_route.group == vmi_subresources.GROUP:
        return _kubevirt_kind_at(kinds, parsed_route)
    kind = kinds.find(parsed_route.group, parsed_route.version, parsed_route.plural)
    if kind is None or not parsed_route.subresource:
        return kind
    served = kubernetes_subresources.serves(kind, parsed_route.subresource)
    return kind if served or forwarding.serves(kind, parsed_route.subresource) else None


def _kubevirt_kind_at(kinds: KindTable, parsed_route: Route) -> Kind | None:
    """Return the kind of a path in the group subresources.kubevirt.io."""
    if parsed_route.version not in vmi_subresources.VERSIONS or not is_embedded(kinds):
        return None
    if expand_vm_spec.is_requested(parsed_route):
        return VIRTUAL_MACHINE
    kind = kinds.find("kubevirt.io", "v1", parsed_route.plural)
    if kind is None or not any(find(kind, parsed_route.subresource) for find, _ in _KUBEVIRT):
        return None
    return kind


def is_embedded(kinds: KindTable) -> bool:
    """Return whether KubeVirt's kinds are built in, and so are their subresources."""
    kind = kinds.by_kind(VIRTUAL_MACHINE.group, VIRTUAL_MACHINE.name)
    return kind is not None and kind.schemas is None


def name_of(parsed_route: Route) -> str:
    """Return the subresource of a path; empty for an object itself."""
    return (
        expand_vm_spec.NAME
        if expand_vm_spec.is_requested(parsed_route)
        else parsed_route.subresource
    )


def parse_call(
    kinds: KindTable, request: Request, user: User, parsed_route: Route, warnings: list[str]
) -> tuple[str, Call | None]:
    """Return the verb of a request, and its call; None if there is no such resource.

    Raises BadRequest for an invalid query.
    """
    kind = kind_at(kinds, parsed_route)
    options = query.parse(request.query)
    watched = request.method == "GET" and (parsed_route.watch or query.flag(options, "watch"))
    verb = route.verb(request.method, parsed_route, watch=watched)
    if kind is None or not route.is_valid_scope(parsed_route, verb, namespaced=kind.namespaced):
        return verb, None
    return verb, Call(
        request=request,
        user=user,
        verb=verb,
        kind=kind,
        group=parsed_route.group,
        version=kind.by_name.get(parsed_route.version, kind.versions[0]),
        namespace=parsed_route.namespace,
        name=parsed_route.name,
        subresource=name_of(parsed_route),
        query=options,
        warnings=warnings,
    )


class Subresources:
    """Answers requests whose path has a ``kind_at``; ``nodes`` finds a node agent's ASGI app."""

    def __init__(self, rest: Rest, nodes: Nodes) -> None:
        self.nodes = nodes
        self._rest = rest

    async def answer(self, call: Call) -> Response:
        """Answer a request for a subresource.  Raises ApiError."""
        if call.group == vmi_subresources.GROUP:
            return await answer_kubevirt(self._rest, self.nodes, call)
        if forwarding.serves(call.kind, call.subresource):
            await self._rest.reviewers.admit_connect(call)
            return await forwarding.answer(self._rest.store, self.nodes, call)
        return await kubernetes_subresources.answer(self._rest, call)


async def answer_kubevirt(rest: Updates, nodes: Nodes, call: Call) -> Response:
    """Answer a request of the group subresources.kubevirt.io.  Raises ApiError."""
    if call.subresource == expand_vm_spec.NAME:
        return await expand_vm_spec.answer(rest, call)
    answer = next(answer for find, answer in _KUBEVIRT if find(call.kind, call.subresource))
    return await answer(rest, nodes, call)
