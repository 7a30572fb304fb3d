"""Which pod of a node has which address.  Pure: what is taken is told, not looked up.

Addresses are handed out in turn, so one that was freed rests until all others had theirs: who still
talks to it talks to nobody, not to a stranger.
"""

from collections.abc import Iterable, Sequence

from corral.node.network.netlink import Address, Network

_FIRST = 2
"""The first of a range is the network itself, the second the gateway of a machine's network."""


class NoAddressFreeError(Exception):
    """All addresses of a range are taken."""


class Allocator:
    """The addresses of a node's ranges (Node.spec.podCIDRs), one range a family of protocols."""

    def __init__(self, ranges: Sequence[Network]) -> None:
        self._ranges = [_Range(one) for one in ranges]
        self._held: dict[str, tuple[Address, ...]] = {}

    @property
    def families(self) -> tuple[int, ...]:
        """The versions of IP that there are ranges of."""
        return tuple(one.network.version for one in self._ranges)

    def hold(self, owner: str, addresses: Iterable[Address]) -> None:
        """Somebody has these already; those of other ranges, of earlier days, are nobody else's."""
        self._held[owner] = tuple(addresses)
        for one in self._ranges:
            one.taken.update(address for address in self._held[owner] if address in one.network)

    def take(self, owner: str, versions: Sequence[int] = (4, 6)) -> tuple[Address, ...]:
        """An address of each version of IP that there is a range of; the same when asked again.

        Raises NoAddressFreeError.
        """
        held = self._held.get(owner, ())
        if not held or not all(any(one in each.network for each in self._ranges) for one in held):
            chosen = [one for one in self._ranges if one.network.version in versions]
            self._held[owner] = tuple(one.next() for one in chosen)
            for one, address in zip(chosen, self._held[owner], strict=True):
                one.take(address)
        return self._held[owner]

    def free(self, owner: str) -> None:
        """Nobody has them any more."""
        addresses = self._held.pop(owner, ())
        for one in self._ranges:
            one.taken.difference_update(addresses)


class _Range:
    def __init__(self, network: Network) -> None:
        self.network = network
        self.taken: set[Address] = set()
        # IPv4 has a last address that means everybody.
        self._size = network.num_addresses - _FIRST - (network.version == 4)
        self._turn = 0

    def next(self) -> Address:
        """The first free one from where the last one was taken.

        There is a free one among as many as are taken, and one more: the search ends by then.
        """
        for step in range(min(len(self.taken) + 1, self._size)):
            address = self.network[_FIRST + (self._turn + step) % self._size]
            if address not in self.taken:
                return address
        raise NoAddressFreeError(
            f"no address is free in the node's range {self.network}: all {max(self._size, 0)} are "
            "taken"
        )

    def take(self, address: Address) -> None:
        self.taken.add(address)
        self._turn = (int(address) - int(self.network[_FIRST]) + 1) % self._size
