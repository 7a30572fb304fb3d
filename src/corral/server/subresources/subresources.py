"""Dispatch of requests for subresources: to this server's handlers, or to a VMI's node."""

from collections.abc import Awaitable, Callable

from corral.api.kind import Kind
from corral.api.kinds import KindTable
from corral.api.kinds.kubevirt.kinds import VIRTUAL_MACHINE
from corral.api.request import Response
from corral.server.node_proxy import forwarding, vmi_subresources
from corral.server.node_proxy.forwarding import Nodes
from corral.server.registry.rest import Rest
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
AnswerSubresource = Callable[[Rest, Nodes, Call], Awaitable[Response]]

_KUBEVIRT: tuple[tuple[Find, AnswerSubresource], ...] = (
    (hotplug.find, lambda rest, _nodes, call: hotplug.answer(rest, call)),
    (evacuation.find, lambda rest, _nodes, call: evacuation.cancel(rest, call)),
    (virtual_machines.find, virtual_machines.answer),
    (vmi_subresources.find, lambda rest, nodes, call: forwarding.answer(rest.store, nodes, call)),
)
"""Handlers of subresources.kubevirt.io: the first whose ``Find`` returns something answers."""


def kind_at(kinds: KindTable, route: Route) -> Kind | None:
    """Return the kind of a path; None where its version or subresource is not served."""
    if route.group == vmi_subresources.GROUP:
        return _kubevirt_kind_at(kinds, route)
    kind = kinds.find(route.group, route.version, route.plural)
    if kind is None or not route.subresource:
        return kind
    served = kubernetes_subresources.serves(kind, route.subresource)
    return kind if served or forwarding.serves(kind, route.subresource) else None


def _kubevirt_kind_at(kinds: KindTable, route: Route) -> Kind | None:
    """Return the kind of a path in the group subresources.kubevirt.io."""
    if route.version not in vmi_subresources.VERSIONS:
        return None
    if expand_vm_spec.is_requested(route):
        return VIRTUAL_MACHINE
    kind = kinds.find("kubevirt.io", "v1", route.plural)
    if kind is None or not any(find(kind, route.subresource) for find, _ in _KUBEVIRT):
        return None
    return kind


def name_of(route: Route) -> str:
    """Return the subresource of a path; empty for an object itself."""
    return expand_vm_spec.NAME if expand_vm_spec.is_requested(route) else route.subresource


class Subresources:
    """Answers requests whose path has a ``kind_at``; ``nodes`` finds a node agent's ASGI app."""

    def __init__(self, rest: Rest, nodes: Nodes) -> None:
        self.nodes = nodes
        self._rest = rest

    async def answer(self, call: Call) -> Response:
        """Answer a request for a subresource.  Raises ApiError."""
        if call.group == vmi_subresources.GROUP:
            return await self._answer_kubevirt(call)
        if forwarding.serves(call.kind, call.subresource):
            await self._rest.reviewers.admit_connect(call)
            return await forwarding.answer(self._rest.store, self.nodes, call)
        return await kubernetes_subresources.answer(self._rest, call)

    async def _answer_kubevirt(self, call: Call) -> Response:
        if call.subresource == expand_vm_spec.NAME:
            return await expand_vm_spec.answer(self._rest, call)
        answer = next(answer for find, answer in _KUBEVIRT if find(call.kind, call.subresource))
        return await answer(self._rest, self.nodes, call)
