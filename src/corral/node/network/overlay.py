"""The network between hosts: reconciles a backend with the Nodes of the cluster.

The backends are named as flannel's: ``vxlan``, ``wireguard``, ``host-gw``, and ``none``.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from ipaddress import ip_network
from typing import Final, Protocol

from lightkube.models.core_v1 import Node, Pod

from corral.aio import Signal, wait_at_most
from corral.api.kinds.core.pod_addresses import pod_addresses
from corral.api.kinds.vmi.derived import MIGRATION_UID
from corral.api.object import Key
from corral.api.volume_binding import is_finished
from corral.node.health import Health
from corral.node.network.moved_addresses import MovedAddresses, by_host, node_name
from corral.node.network.netlink import Address, Network, NetworkError
from corral.node.network.peers import Peer, encryption, internal_address, peers, pod_ranges
from corral.reconcile.context import ControllerContext
from corral.reconcile.controller import Controller, Result
from corral.reconcile.objects import key_of
from corral.reconcile.workqueue import WorkQueue

RETRY_SECONDS: Final = 30.0
GIVE_BACK_SECONDS: Final = 5.0
"""Longest wait for the routes to a machine whose target here has failed."""


class Backend(Protocol):
    """Leads packets from the machine namespace to other hosts."""

    async def apply(
        self,
        own: Peer,
        peers: Mapping[Address, Peer],
        gone: Collection[Peer] = (),
        left: Collection[Network] = (),
    ) -> None:
        """Sync links and routes with this host and the peers.

        gone: peers of an earlier call; left: addresses whose machines have just left this host.
        Raises NetworkError.
        """


class Overlay:
    """The peers of this host, whose address is ``address``, as a backend leads to them.

    ``lock`` is held while routes of the machine namespace change.  ``on_change`` is called when
    ``problems`` or ``has_peers`` changes.
    """

    def __init__(
        self,
        context: ControllerContext,
        backend: Backend,
        *,
        address: Address,
        pod_cidrs: Sequence[Network],
        lock: asyncio.Lock,
        on_change: Callable[[], None],
    ) -> None:
        self._queue = WorkQueue[Key]()
        self._nodes = context.informers.of(Node)
        self._pods = context.informers.of(Pod, labels=MIGRATION_UID)
        self._moved = MovedAddresses()
        self._backend = backend
        self._address = address
        self._pod_cidrs = pod_cidrs
        self._lock = lock
        self._health = Health("the network between hosts", on_change)
        self._applied: dict[Address, Peer] = {}
        self._given_back: list[tuple[frozenset[Network], Signal]] = []
        self._on_change = on_change
        self.has_peers = False
        """True if there are other hosts."""
        self._nodes.handle(self._node_changed)
        self._pods.handle(self._pod_changed)
        self.run = Controller(
            "overlay",
            self._reconcile,
            queue=self._queue,
            sources=(self._nodes, self._pods),
            workers=1,
        ).run

    def problems(self) -> Sequence[str]:
        """Return the problems, a line each."""
        return [self._health.problem] if self._health.problem else []

    def resync(self) -> None:
        """Restore the device, its addresses and routes if they were removed."""
        self._applied = {}
        self._queue.add(_EVERYTHING)

    def lead(self, addresses: Iterable[Address], node: str, pod: Key) -> None:
        """Lead the addresses of a machine that leaves this host to another node.

        The API shows that later, at its new pod; without that the addresses are not led there.
        """
        self._moved.lead(addresses, node, pod)
        self._queue.add(_EVERYTHING)

    def forget(self, addresses: Iterable[Address]) -> None:
        """Undo ``lead``: another machine here has an address."""
        if self._moved.forget(addresses):
            self._queue.add(_EVERYTHING)

    def arrived(self, addresses: Iterable[Address]) -> None:
        """Lead packets of other hosts to a machine that has come from there."""
        self._moved.forget(addresses)
        self._queue.add(_EVERYTHING)

    async def give_back(self, addresses: Iterable[Address]) -> None:
        """Lead addresses to where the API shows them, instead of by the link of their pod here.

        Returns once they are, or after a while if routes cannot be changed.
        """
        self._moved.forget(given := list(addresses))
        applied = Signal()
        self._given_back.append((frozenset(map(ip_network, given)), applied))
        self._queue.add(_EVERYTHING)
        await wait_at_most(applied, GIVE_BACK_SECONDS)

    def links_changed(self) -> None:
        """Sync with the links of pods: that of a machine which leaves shows its end."""
        if self._applied:
            self._queue.add(_EVERYTHING)

    def _pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        before, after = (
            (pod_addresses(each), node_name(each), is_finished(each)) if each is not None else None
            for each in (old, new)
        )
        if before != after:
            self._queue.add(_EVERYTHING)

    def _node_changed(self, old: Node | None, new: Node | None) -> None:
        # Heartbeats change a Node every two minutes, and never what matters here.
        before, after = (
            (internal_address(each), pod_ranges(each), encryption(each))
            if each is not None
            else None
            for each in (old, new)
        )
        if before != after:
            self._queue.add(_EVERYTHING)

    async def _reconcile(self, _key: Key) -> Result | None:
        try:
            # Read within it: a machine that takes an address over meanwhile has not left.
            async with self._lock:
                await self._apply()
        except NetworkError as error:
            self._health.report(error.full_message)
            return Result(requeue_after=RETRY_SECONDS)
        self._health.report("")
        if self.has_peers != bool(self._applied):
            self.has_peers = bool(self._applied)
            self._on_change()
        return None

    async def _apply(self) -> None:
        """Have the backend sync with the hosts as they are now.  Raises NetworkError."""
        own, desired, left = self._hosts()
        given_back, self._given_back = self._given_back, []
        if desired or self._applied:  # a host that is alone needs none
            left.update(*(each for each, _ in given_back))
            gone = [each for each in self._applied.values() if each.address not in desired]
            await self._backend.apply(own, desired, gone, left)
            self._applied = desired
        for _, applied in given_back:
            applied.set()

    def _hosts(self) -> tuple[Peer, dict[Address, Peer], set[Network]]:
        """Return this host and the others, with the addresses that have moved to each.

        The last part are those that have just left this host.
        """
        nodes = list(self._nodes.items())
        pods = list(self._pods.items())
        moved = by_host(self._moved.nodes(pods), nodes, self._pod_cidrs)
        own_nodes = {key_of(each).name for each in nodes if internal_address(each) == self._address}
        led = self._moved.led(pods)
        left = {ip_network(each) for each, node in led.items() if node not in own_nodes}
        ranges = [
            each for node in nodes if key_of(node).name in own_nodes for each in pod_ranges(node)
        ]
        own = Peer(self._address, tuple(ranges), moved.get(self._address, ()))
        others = {
            address: replace(peer, moved=moved.get(address, ()))
            for address, peer in peers(nodes, self._address).items()
        }
        return own, others, left


_EVERYTHING: Final = Key("", "")
"""The one key: all peers are reconciled together, since ranges may move between them."""
