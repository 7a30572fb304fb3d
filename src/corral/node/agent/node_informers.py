"""The caches of a node of another host: only what the Node authorizer lets it read.

The node reads the VMIs that carry its name in the label ``kubevirt.io/nodeName``, as virt-handler
does, and the Secrets, ConfigMaps and ServiceAccounts that these name.
"""

from typing import Any, TypeVar

import msgspec

from corral.api.kind import Kind
from corral.api.kinds.vmi.derived import NODE_LABEL
from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.client.client import Client
from corral.node.agent.named_objects import NamedObjects
from corral.reconcile.informer import Informer, Informers
from corral.reconcile.objects import Partial

T = TypeVar("T", bound=msgspec.Struct)


class NodeInformers(Informers):
    """The informers of one node."""

    def __init__(self, client: Client, node: str) -> None:
        super().__init__(client)
        self._node = node

    def of(
        self, view: type[T], *, fields: str = "", labels: str = "", kind: Kind | None = None
    ) -> Informer[T]:
        """Return the informer of a view; of VMIs those of this node."""
        if issubclass(view, VirtualMachineInstance) and not fields and not labels:
            labels = f"{NODE_LABEL}={self._node}"
        return super().of(view, fields=fields, labels=labels, kind=kind)

    def metadata(self, kind: Kind) -> Informer[Any]:
        """Return the informer of the objects of a kind that the VMIs of this node name."""
        address = (Partial, kind.resource, "", "")
        if (informer := self._informers.get(address)) is None:
            vmis = self.of(VirtualMachineInstance)
            informer = self._informers[address] = NamedObjects(self._client, kind, vmis)
            if self._running is not None:
                self._start(self._running, informer)
        return informer
