"""The caches of a node of another host: only what the Node authorizer lets it read.

The node reads the VMIs that carry its name in the label ``kubevirt.io/nodeName``, or as the target
of a migration, as virt-handler does, and the Secrets, ConfigMaps and ServiceAccounts that these
name.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import msgspec

from corral.api.kind import Kind
from corral.api.kinds import kind_of
from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.client.client import Client
from corral.node.agent.named_objects import NamedObjects
from corral.node.agent.placed_instances import PlacedInstances
from corral.reconcile.informer import Informer, Informers
from corral.reconcile.objects import Partial

T = TypeVar("T", bound=msgspec.Struct)
Address = tuple[type[msgspec.Struct], str, str, str]


class NodeInformers(Informers):
    """The informers of one node."""

    def __init__(self, client: Client, node: str) -> None:
        super().__init__(client)
        self._node = node

    def of(
        self, view: type[T], *, fields: str = "", labels: str = "", kind: Kind | None = None
    ) -> Informer[T]:
        """Return the informer of a view; of VMIs those of this node."""
        if not issubclass(view, VirtualMachineInstance) or fields or labels:
            return super().of(view, fields=fields, labels=labels, kind=kind)
        vmis = partial(PlacedInstances, self._client, self._node)
        found: Informer[Any] = self._own((view, kind_of(view).resource, "", ""), vmis)
        if found not in self._by_view[view]:
            self._by_view[view] += (found,)
        return found

    def metadata(self, kind: Kind) -> Informer[Any]:
        """Return the informer of the objects of a kind that the VMIs of this node name."""
        vmis = self.of(VirtualMachineInstance)
        named = partial(NamedObjects, self._client, kind, vmis)
        return self._own((Partial, kind.resource, "", ""), named)

    def _own(self, address: Address, make: Callable[[], Informer[Any]]) -> Informer[Any]:
        """Return an informer that is made of others, one for each address."""
        if (informer := self._informers.get(address)) is None:
            informer = self._informers[address] = make()
            if self._running is not None:
                self._start(self._running, informer)
        return informer
