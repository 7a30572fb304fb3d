"""The network between hosts: reconciles a backend with the Nodes of the cluster.

The backends are named as flannel's: ``vxlan``, ``host-gw``, and ``none``.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final, Protocol

from lightkube.models.core_v1 import Node

from corral.api.object import Key
from corral.node.health import Health
from corral.node.network.netlink import Address, Network, NetworkError
from corral.node.network.peers import Peer, internal_address, peers, pod_ranges
from corral.reconcile.context import ControllerContext
from corral.reconcile.controller import Controller, Result
from corral.reconcile.workqueue import WorkQueue

RETRY_SECONDS: Final = 30.0


class Backend(Protocol):
    """Leads packets from the machine namespace to other hosts."""

    async def apply(
        self, own: Sequence[Network], peers: Mapping[Address, Peer], gone: Collection[Peer]
    ) -> None:
        """Sync links and routes with this host's ranges and the peers.

        gone: peers of an earlier call.  Raises NetworkError.
        """


class Overlay:
    """The peers of this host, whose address is ``address``, as a backend leads to them.

    ``on_change`` is called when ``problems`` or ``has_peers`` changes.
    """

    def __init__(
        self,
        context: ControllerContext,
        backend: Backend,
        *,
        address: Address,
        pod_cidrs: Sequence[Network],
        on_change: Callable[[], None],
    ) -> None:
        self._queue = WorkQueue[Key]()
        self._nodes = context.informers.of(Node)
        self._backend = backend
        self._address = address
        self._versions = {each.version for each in pod_cidrs}
        self._health = Health("the network between hosts", on_change)
        self._applied: dict[Address, Peer] = {}
        self._on_change = on_change
        self.has_peers = False
        """Whether there are other hosts."""
        self._nodes.handle(self._changed)
        self.run = Controller(
            "overlay", self._reconcile, queue=self._queue, sources=(self._nodes,), workers=1
        ).run

    def problems(self) -> Sequence[str]:
        """Return the problems, a line each."""
        return [self._health.problem] if self._health.problem else []

    def resync(self) -> None:
        """Restore the device, its addresses and routes if they were removed."""
        self._applied = {}
        self._queue.add(_EVERYTHING)

    def _changed(self, old: Node | None, new: Node | None) -> None:
        # Heartbeats change a Node every two minutes, and never what matters here.
        before, after = (
            (internal_address(each), pod_ranges(each)) if each is not None else None
            for each in (old, new)
        )
        if before != after:
            self._queue.add(_EVERYTHING)

    async def _reconcile(self, _key: Key) -> Result | None:
        nodes = list(self._nodes.items())
        desired = peers(nodes, self._address)
        own = [
            each
            for node in nodes
            if internal_address(node) == self._address
            for each in pod_ranges(node)
            if each.version in self._versions
        ]
        if not desired and not self._applied:
            return None  # a host that is alone needs none
        gone = [each for each in self._applied.values() if each.address not in desired]
        try:
            await self._backend.apply(own, desired, gone)
        except NetworkError as error:
            self._health.report(error.full_message)
            return Result(requeue_after=RETRY_SECONDS)
        self._applied = desired
        self._health.report("")
        if self.has_peers != bool(desired):
            self.has_peers = bool(desired)
            self._on_change()
        return None


_EVERYTHING: Final = Key("", "")
"""The one key: all peers are reconciled together, since ranges may move between them."""
