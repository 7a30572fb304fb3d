"""What is asked below objects: which paths there are, and who answers them.

Answers come from this server, or from the node that runs what is meant.
"""

from collections.abc import Awaitable, Callable

from corral.api.kind import Kind
from corral.api.kinds import KindTable
from corral.api.kinds.kubevirt.kinds import VIRTUAL_MACHINE
from corral.api.request import Response
from corral.server.node_proxy import forwarding, machines
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
"""Finds the subresource of a kind; None where the kind does not have it."""
AnswerBelow = Callable[[Rest, Nodes, Call], Awaitable[Response]]

_KUBEVIRT: tuple[tuple[Find, AnswerBelow], ...] = (
    (hotplug.find, lambda rest, _nodes, call: hotplug.answer(rest, call)),
    (evacuation.find, lambda rest, _nodes, call: evacuation.cancel(rest, call)),
    (virtual_machines.find, virtual_machines.answer),
    (machines.find, lambda rest, nodes, call: forwarding.answer(rest.store, nodes, call)),
)
"""What subresources.kubevirt.io has below objects, and what answers it: the first that finds it."""


def kind_at(kinds: KindTable, named: Route) -> Kind | None:
    """The kind that a path is about, where it is served with that version and subresource."""
    if named.group == machines.GROUP:
        return _kubevirt_kind_at(kinds, named)
    kind = kinds.find(named.group, named.version, named.plural)
    if kind is None or not named.subresource:
        return kind
    served = kubernetes_subresources.serves(kind, named.subresource)
    return kind if served or forwarding.serves(kind, named.subresource) else None


def _kubevirt_kind_at(kinds: KindTable, named: Route) -> Kind | None:
    """The same in the group subresources.kubevirt.io."""
    if named.version not in machines.VERSIONS:
        return None
    if expand_vm_spec.is_asked(named):
        return VIRTUAL_MACHINE
    kind = kinds.find("kubevirt.io", "v1", named.plural)
    if kind is None or not any(find(kind, named.subresource) for find, _ in _KUBEVIRT):
        return None
    return kind


def name_of(named: Route) -> str:
    """The subresource that a path means; empty for an object itself."""
    return expand_vm_spec.NAME if expand_vm_spec.is_asked(named) else named.subresource


class Subresources:
    """Answers what ``kind_at`` finds a kind for; ``nodes`` finds the ASGI app of a node's agent."""

    def __init__(self, rest: Rest, nodes: Nodes) -> None:
        self.nodes = nodes
        self._rest = rest

    async def answer(self, call: Call) -> Response:
        """Raises ApiError."""
        if call.group == machines.GROUP:
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
