"""A node's share in its machines' networks: which addresses they have, and when they are joined.

Addresses come from the node's ranges (Node.spec.podCIDRs), which kube-controller-manager, or its
stand-in, assigns; until then machines wait.  Which machine has which is on the machines' records.
"""

import asyncio
from collections.abc import Iterable, Sequence
from ipaddress import ip_address, ip_network
from typing import Protocol

from corral.aio import wait_at_most
from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.node.hypervisor import Network, StartError
from corral.node.network.allocator import Allocator, NoAddressFreeError
from corral.node.network.netlink import NetworkError

RANGE_SECONDS = 30.0
"""How long a machine waits for the node's ranges before it says that there are none."""
NO_SANDBOX = "FailedCreatePodSandBox"
"""What a kubelet calls it when a pod cannot have its network."""


class Networks(Protocol):
    """Where machines are joined to each other; all of it is idempotent."""

    def families(self, vmi: VirtualMachineInstance) -> Sequence[int]:
        """The versions of IP that an instance needs addresses of."""

    async def attach(
        self, uid: str, vmi: VirtualMachineInstance, addresses: Iterable[str]
    ) -> Network | None:
        """The network of an instance that is to be started.  Raises NetworkError."""

    async def adopt(
        self, uid: str, vmi: VirtualMachineInstance, addresses: Iterable[str], pid: int
    ) -> Network | None:
        """The network of an instance that runs in a process already.  Raises NetworkError."""

    def detach(self, uid: str) -> None:
        """An instance needs its network no more."""


class Networking:
    """The networks of one node's machines; without ``networks`` none has an address."""

    def __init__(self, networks: Networks | None) -> None:
        self._networks = networks
        self._allocator = Allocator(())
        self._assigned = asyncio.Event()
        self._ranges: Sequence[str] = ()
        self._held: dict[str, Sequence[str]] = {}

    def assign(self, ranges: Sequence[str]) -> None:
        """The node's ranges of addresses are these; what is held stays held.

        One that was deleted, and has registered again, may have others: its former ones may be
        another node's by now, so nobody new gets an address of them.
        """
        if not ranges or list(ranges) == self._ranges:
            return
        self._ranges = list(ranges)
        self._allocator = Allocator([ip_network(each) for each in ranges])
        for uid, addresses in self._held.items():
            self._allocator.hold(uid, map(ip_address, addresses))
        self._assigned.set()

    def hold(self, uid: str, addresses: Sequence[str]) -> None:
        """A machine of an earlier manager has these."""
        if addresses:
            self._held[uid] = addresses
            self._allocator.hold(uid, map(ip_address, addresses))

    async def addresses(self, vmi: VirtualMachineInstance) -> tuple[str, ...]:
        """The addresses of the pod of an instance that is to be started, one a family.

        They are the same when asked again, while the node has these ranges.  Raises StartError
        where none can be had at present.
        """
        if self._networks is None:
            return ()
        await wait_at_most(self._assigned, RANGE_SECONDS)
        if not self._assigned.is_set():
            raise _no_sandbox(
                "the node has no range of addresses yet (spec.podCIDR)",
                "on a cluster, kube-controller-manager assigns it: --allocate-node-cidrs",
            )
        uid = vmi.metadata.uid
        try:
            taken = self._allocator.take(uid, self._networks.families(vmi))
        except NoAddressFreeError as error:
            raise _no_sandbox(str(error)) from error
        addresses = tuple(str(one) for one in taken)
        if tuple(self._held.get(uid, addresses)) != addresses:
            self._networks.detach(uid)  # made for addresses of the node's former ranges
        self._held[uid] = addresses
        return addresses

    async def attach(self, vmi: VirtualMachineInstance, addresses: Sequence[str]) -> Network | None:
        """Make what an instance is to be started in.  Raises StartError."""
        if self._networks is None:
            return None
        try:
            return await self._networks.attach(vmi.metadata.uid, vmi, addresses)
        except NetworkError as error:
            raise _no_sandbox(error.message, error.hint) from error

    async def adopt(
        self, vmi: VirtualMachineInstance, addresses: Sequence[str], pid: int | None
    ) -> str:
        """Mend the network of an instance that runs; answers what is wrong with it, if anything.

        A machine without addresses is behind QEMU's user network, which needs nobody.
        """
        if self._networks is None or not addresses or pid is None:
            return ""
        try:
            await self._networks.adopt(vmi.metadata.uid, vmi, addresses, pid)
        except NetworkError as error:
            return error.told
        return ""

    def release(self, uid: str) -> None:
        """A machine has ended: nobody has its addresses any more."""
        self._held.pop(uid, None)
        self._allocator.free(uid)
        if self._networks is not None:
            self._networks.detach(uid)


def _no_sandbox(why: str, hint: str = "") -> StartError:
    return StartError(NO_SANDBOX, f"Failed to create pod sandbox: {why}", hint)
