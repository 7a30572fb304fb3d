"""Allocation of pod addresses on a node, and attachment of machines to the network.

Addresses come from the node's ranges (Node.spec.podCIDRs), which kube-controller-manager, or its
stand-in, assigns; machines wait until then.  With the backend ``cni`` plugins allocate them.  The
addresses are part of the machine records.
"""

import asyncio
from collections.abc import Iterable, Sequence
from ipaddress import ip_address, ip_network
from typing import NamedTuple, Protocol

import structlog

from corral.aio import wait_at_most
from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.api.object import Key
from corral.node.hypervisor import Network, StartError
from corral.node.network.allocator import Allocator, NoAddressFreeError
from corral.node.network.netlink import NetworkError

log = structlog.get_logger()

RANGE_TIMEOUT_SECONDS = 30.0
"""Time that a machine waits for the node's ranges before it reports their absence."""
NO_SANDBOX = "FailedCreatePodSandBox"
"""Reason of a kubelet's event for a pod whose network cannot be set up."""


class PodReference(NamedTuple):
    """The launcher pod of a VMI."""

    namespace: str
    name: str
    uid: str


class Networks(Protocol):
    """Attaches machines to the pod network; all methods are idempotent."""

    def families(self, vmi: VirtualMachineInstance) -> Sequence[int]:
        """Return the IP versions that a VMI needs addresses of."""

    async def allocate(
        self, owner: str, pod: PodReference, vmi: VirtualMachineInstance, ranges: Sequence[str]
    ) -> tuple[str, ...] | None:
        """Return the addresses of a pod; None if they are to be of the node's ranges.

        ``ranges``: of the node, as far as known.  Raises NetworkError.
        """

    async def attach(
        self, owner: str, vmi: VirtualMachineInstance, addresses: Iterable[str], *, held: bool
    ) -> Network | None:
        """Create the network of a VMI that is about to start.  Raises NetworkError.

        held: nothing leads to it until ``take_over``: another machine has the addresses.
        """

    async def adopt(
        self,
        owner: str,
        vmi: VirtualMachineInstance,
        addresses: Iterable[str],
        pid: int,
        *,
        held: bool,
    ) -> Network | None:
        """Adopt the network of a VMI that runs in a process already.  Raises NetworkError."""

    async def take_over(self, owner: str) -> None:
        """Lead the addresses to a network, unless they lead there.  Raises NetworkError."""

    def let_go(self, owner: str, addresses: Iterable[str], node: str, pod: Key) -> None:
        """Lead the addresses of a machine that migrates to its new node and pod."""

    async def give_back(self, owner: str, addresses: Iterable[str]) -> None:
        """Undo ``take_over``: the guest stays where it was.  Raises NetworkError."""

    def detach(self, owner: str) -> None:
        """Release the network of a machine."""


class Networking:
    """The pod network of one node; without ``networks`` machines have no addresses.

    Machines are named by ``owner``, the ``id`` of their records.
    """

    def __init__(self, networks: Networks | None) -> None:
        self._networks = networks
        self._allocator = Allocator(())
        self._assigned = asyncio.Event()
        self._ranges: Sequence[str] = ()
        self._allocated: dict[str, Sequence[str]] = {}

    def assign(self, ranges: Sequence[str]) -> None:
        """Set the node's ranges; existing allocations stay.

        A node that was deleted and has registered again may have other ranges: its former ones may
        be another node's by now, so no new address is allocated from them.
        """
        if not ranges or list(ranges) == self._ranges:
            return
        self._ranges = list(ranges)
        self._allocator = Allocator([ip_network(each) for each in ranges])
        for owner, addresses in self._allocated.items():
            self._allocator.reserve(owner, map(ip_address, addresses))
        self._assigned.set()

    def restore(self, owner: str, addresses: Sequence[str]) -> None:
        """Restore the allocation of a machine that an earlier manager has started."""
        if addresses:
            self._allocated[owner] = addresses
            self._allocator.reserve(owner, map(ip_address, addresses))

    def keep(self, owner: str, addresses: Sequence[str]) -> tuple[str, ...]:
        """Return the addresses of a machine that migrates here, of whatever node they are."""
        if self._networks is None:
            return ()
        self.restore(owner, addresses)
        return tuple(addresses)

    def observe(self, pod: Key, addresses: Sequence[str]) -> None:
        """Reserve the addresses of a pod of another node, which may be of this node's ranges.

        A machine that migrates keeps its address.  Without addresses, which means that the pod has
        ended, the reservation ends.
        """
        owner = _reservation(pod)
        if addresses:
            self.restore(owner, addresses)
        elif owner in self._allocated:
            self._allocated.pop(owner)
            self._allocator.release(owner)

    async def addresses(
        self, owner: str, vmi: VirtualMachineInstance, pod: PodReference
    ) -> tuple[str, ...]:
        """Return the addresses of the pod of a VMI that is about to start, one for each IP family.

        They are the same on each call while the node's ranges stay the same.  Raises StartError.
        """
        if self._networks is None:
            return ()
        try:
            given = await self._networks.allocate(owner, pod, vmi, self._ranges)
        except NetworkError as error:
            raise _no_sandbox(error.message, error.hint) from error
        return given if given is not None else await self._of_ranges(owner, vmi, self._networks)

    async def _of_ranges(
        self, owner: str, vmi: VirtualMachineInstance, networks: Networks
    ) -> tuple[str, ...]:
        """Return addresses of the node's ranges, once it has some."""
        await wait_at_most(self._assigned, RANGE_TIMEOUT_SECONDS)
        if not self._assigned.is_set():
            raise _no_sandbox(
                "the node has no range of addresses yet (spec.podCIDR)",
                "on a cluster, kube-controller-manager assigns it: --allocate-node-cidrs",
            )
        try:
            allocated = self._allocator.allocate(owner, networks.families(vmi))
        except NoAddressFreeError as error:
            raise _no_sandbox(str(error)) from error
        addresses = tuple(str(address) for address in allocated)
        if tuple(self._allocated.get(owner, addresses)) != addresses:
            networks.detach(owner)  # it was created for addresses of the node's former ranges
        self._allocated[owner] = addresses
        return addresses

    async def attach(
        self,
        owner: str,
        vmi: VirtualMachineInstance,
        addresses: Sequence[str],
        *,
        held: bool = False,
    ) -> Network | None:
        """Create the network in which a VMI is about to start.  Raises StartError."""
        if self._networks is None:
            return None
        try:
            return await self._networks.attach(owner, vmi, addresses, held=held)
        except NetworkError as error:
            raise _no_sandbox(error.message, error.hint) from error

    async def adopt(
        self,
        owner: str,
        vmi: VirtualMachineInstance,
        addresses: Sequence[str],
        pid: int | None,
        *,
        held: bool = False,
    ) -> str:
        """Adopt and repair the network of a running VMI; return its problem, or an empty string.

        A machine without addresses uses QEMU's user network, which needs no repair.
        """
        if self._networks is None or not addresses or pid is None:
            return ""
        try:
            await self._networks.adopt(owner, vmi, addresses, pid, held=held)
        except NetworkError as error:
            return error.full_message
        return ""

    async def take_over(self, owner: str) -> None:
        """Lead the addresses of a machine that migrates here to it, or of one that stays after all.

        A failure is repaired as that of any link: the guest is this machine's in any case.
        """
        if self._networks is None:
            return
        try:
            await self._networks.take_over(owner)
        except NetworkError as error:
            log.warning("the addresses of a machine do not lead to it", error=error.full_message)

    async def give_back(self, owner: str, addresses: Sequence[str]) -> None:
        """Undo ``take_over`` for a machine that does not get its guest, before its QEMU's end.

        The addresses lead to the source again.  A failure is logged only: the link of the network
        goes with it in any case.
        """
        if self._networks is None:
            return
        try:
            await self._networks.give_back(owner, addresses)
        except NetworkError as error:
            log.warning("addresses still lead to a machine that ends", error=error.full_message)

    def let_go(self, owner: str, addresses: Sequence[str], node: str, pod: Key) -> None:
        """Lead the addresses of a machine that migrates to its new node and pod, from this host.

        Other hosts follow what the API shows.  The addresses stay reserved until that pod ends.
        """
        if self._networks is None or not addresses:
            return
        self.restore(_reservation(pod), addresses)
        self._networks.let_go(owner, addresses, node, pod)

    def release(self, owner: str) -> None:
        """Release the addresses and the network of a machine that has ended."""
        self._allocated.pop(owner, None)
        self._allocator.release(owner)
        if self._networks is not None:
            self._networks.detach(owner)


def _reservation(pod: Key) -> str:
    """Return the owner of the addresses of a pod of another node."""
    return f"pod {pod}"


def _no_sandbox(reason: str, hint: str = "") -> StartError:
    return StartError(NO_SANDBOX, f"Failed to create pod sandbox: {reason}", hint)
