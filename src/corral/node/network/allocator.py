"""Allocates the IP addresses of a node's ranges to pods.

No I/O: existing allocations are restored by the caller.

Addresses are allocated round-robin, so a released one is reused last: a client that still sends to
it does not reach another pod.
"""

from collections.abc import Iterable, Sequence

from corral.node.network.netlink import Address, Network

_FIRST_INDEX = 2
"""Index 0 is the network's own address, index 1 the gateway."""


class NoAddressFreeError(Exception):
    """All addresses of a range are allocated."""


class Allocator:
    """Allocates addresses of a node's ranges (Node.spec.podCIDRs), one range for each IP family."""

    def __init__(self, ranges: Sequence[Network]) -> None:
        self._ranges = [_Range(range_) for range_ in ranges]
        self._allocated: dict[str, tuple[Address, ...]] = {}

    @property
    def families(self) -> tuple[int, ...]:
        """The IP versions of the ranges."""
        return tuple(range_.network.version for range_ in self._ranges)

    def reserve(self, owner: str, addresses: Iterable[Address]) -> None:
        """Reserve addresses that an owner has already, also those of former ranges."""
        self._allocated[owner] = tuple(addresses)
        for range_ in self._ranges:
            range_.allocated.update(
                address for address in self._allocated[owner] if address in range_.network
            )

    def allocate(self, owner: str, versions: Sequence[int] = (4, 6)) -> tuple[Address, ...]:
        """Allocate an address of each range for the versions; on each call the same ones.

        Raises NoAddressFreeError.
        """
        current = self._allocated.get(owner, ())
        if not current or not all(
            any(range_ in each.network for each in self._ranges) for range_ in current
        ):
            ranges = [range_ for range_ in self._ranges if range_.network.version in versions]
            self._allocated[owner] = tuple(range_.next() for range_ in ranges)
            for range_, address in zip(ranges, self._allocated[owner], strict=True):
                range_.allocate(address)
        return self._allocated[owner]

    def release(self, owner: str) -> None:
        """Release the addresses of an owner."""
        addresses = self._allocated.pop(owner, ())
        if not addresses:
            return
        # Both sides of a migration have the same ones.
        others = {each for held in self._allocated.values() for each in held}
        for range_ in self._ranges:
            range_.allocated.difference_update(set(addresses) - others)


class _Range:
    def __init__(self, network: Network) -> None:
        self.network = network
        self.allocated: set[Address] = set()
        # The last address of an IPv4 range is its broadcast address.
        self._size = network.num_addresses - _FIRST_INDEX - (network.version == 4)
        self._next_index = 0

    def next(self) -> Address:
        """Return the first free address after the one that was allocated last.

        One of the first n + 1 candidates is free if n are allocated, so the search ends there.
        """
        for step in range(min(len(self.allocated) + 1, self._size)):
            address = self.network[_FIRST_INDEX + (self._next_index + step) % self._size]
            if address not in self.allocated:
                return address
        raise NoAddressFreeError(
            f"no address is free in the node's range {self.network}: all {max(self._size, 0)} are "
            "taken"
        )

    def allocate(self, address: Address) -> None:
        self.allocated.add(address)
        self._next_index = (int(address) - int(self.network[_FIRST_INDEX]) + 1) % self._size
