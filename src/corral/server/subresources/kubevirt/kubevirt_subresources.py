"""What KubeVirt serves below machines, in the group subresources.kubevirt.io: who answers what."""

from typing import TYPE_CHECKING

from corral.api.kind import Kind
from corral.api.kinds import KindTable
from corral.api.kinds.kubevirt.kinds import VIRTUAL_MACHINE
from corral.api.request import Response
from corral.server.node_proxy import forwarding, machines
from corral.server.registry.rest import Rest
from corral.server.request.call import Call
from corral.server.request.route import Route
from corral.server.subresources.kubevirt import (
    evacuation,
    expand_vm_spec,
    hotplug,
    virtual_machines,
)

if TYPE_CHECKING:
    from corral.server.node_proxy.forwarding import Nodes

_FINDERS = (hotplug.find, evacuation.find, machines.find, virtual_machines.find)


def kind_at(kinds: KindTable, named: Route) -> Kind | None:
    """The kind that a path of the group is about; None where nothing is served there."""
    if named.version not in machines.VERSIONS:
        return None
    if expand_vm_spec.is_asked(named):
        return VIRTUAL_MACHINE
    kind = kinds.find("kubevirt.io", "v1", named.plural)
    if kind is None or not any(find(kind, named.subresource) for find in _FINDERS):
        return None
    return kind


async def answer(rest: Rest, nodes: "Nodes", call: Call) -> Response:
    """Answer what ``kind_at`` found a kind for."""
    if call.subresource == expand_vm_spec.NAME:
        return await expand_vm_spec.answer(rest, call)
    if hotplug.find(call.kind, call.subresource):
        return await hotplug.answer(rest, call)
    if evacuation.find(call.kind, call.subresource):
        return await evacuation.cancel(rest, call)
    if virtual_machines.find(call.kind, call.subresource):
        return await virtual_machines.answer(rest, nodes, call)
    return await forwarding.answer(rest.store, nodes, call)
