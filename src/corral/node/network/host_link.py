"""The link between the host and the machine namespace, which only root may make.

By it the host reaches pods and Services at their addresses.  It is a pair of virtual cards, gone
with the namespace; nothing else of the host is changed.  Several corrals may have one each.
"""

from collections.abc import Iterable, Iterator, Sequence
from ipaddress import IPv4Interface, IPv6Interface
from pathlib import Path
from typing import Final

from corral.node.network import netlink
from corral.node.network.namespace_nft_rules import HOST
from corral.node.network.namespaces import Namespace
from corral.node.network.netlink import Interface, Netlink, Network, NetworkError

MOST: Final = 64
"""So many corrals may have a link on one host."""
_WAY_OUT: Final = (
    "end this corral (corral down), and start it with other ranges: --pod-cidr and --service-cidr"
)


class HostLink:
    """The link of one data directory, whose path is the link's alias on the host."""

    def __init__(self, directory: Path, namespace: Namespace, ranges: Sequence[Network]) -> None:
        self.problems: Sequence[str] = ()
        self._alias = alias(directory)
        self._namespace = namespace
        self._host = Namespace.current()
        self._ranges = ranges

    async def ensure(self) -> None:
        """Make what is missing of it; ``problems`` says what cannot be."""
        try:
            number = await self._host.call(self._link)
            await self._namespace.call(self._furnish, number)
            self.problems = await self._host.call(self._lead, number)
        except NetworkError as error:
            self.problems = [f"the host does not reach machines: {error.told}"]

    def close(self) -> None:
        """Leave the link as it is."""
        self._host.close()

    def _link(self) -> int:
        """On the host: the number of the link, which is made where it is not whole."""
        with netlink.opened() as link:
            present = link.links()
            for each in present.values():
                if each.alias == self._alias:
                    if self._namespace.run(_is_there):
                        self._address(link, each.name)
                        return number_of(each.name)
                    link.delete(each.name)
            # Half of a link that somebody had no time to give its alias goes with its other end.
            self._namespace.run(_remove_inner)
            name = self._pair(link)
            link.change(name, alias=self._alias)
            self._address(link, name)
            return number_of(name)

    def _pair(self, link: Netlink) -> str:
        """On the host: a new pair of cards under the lowest number that nobody else takes."""
        while True:
            name = name_of(free_number(link.links()))
            try:
                link.add_veth(name, peer=HOST, peer_namespace=self._namespace.descriptor)
            except NetworkError:
                if not link.index(name):
                    raise
                continue  # another corral was quicker, and has this number for good
            return name

    def _address(self, link: Netlink, name: str) -> None:
        """On the host: bring the link up, with its addresses."""
        link.change(name)
        for address, _ in addresses(number_of(name)):
            if self._has(address):
                link.add_address(name, address)

    def _furnish(self, number: int) -> None:
        """Inside: the other end."""
        with netlink.opened() as link:
            link.change(HOST)
            for _, address in addresses(number):
                if self._has(address):
                    link.add_address(HOST, address)

    def _lead(self, number: int) -> Sequence[str]:
        """On the host: routes to pods and Services; answers what stands in their way."""
        name = name_of(number)
        with netlink.opened() as link:
            others = {
                version: [
                    (network, device)
                    for network, device in link.routes(version)
                    if device != name and network.prefixlen > 0
                ]
                for version in {each.version for each in self._ranges}
            }
            for each in self._ranges:
                _lead(link, each, number)
            elsewhere = {
                f"{network} ({device or 'nowhere'})"
                for each in self._ranges
                for network, device in overlapping(each, others[each.version])
            }
        if not elsewhere:
            return ()
        where = ", ".join(sorted(elsewhere))
        trouble = f"this host has other ways to {where}, and may not reach these"
        return (f"{trouble} machines and Services by itself; {_WAY_OUT}",)

    def _has(self, address: Interface) -> bool:
        return address.version in {each.version for each in self._ranges}


def alias(directory: Path) -> str:
    """By what the link of a data directory is known."""
    return f"corral {directory.absolute()}"[-255:]


def name_of(number: int) -> str:
    return f"corral{number}"


def number_of(name: str) -> int:
    return int(name.removeprefix("corral"))


def free_number(present: Iterable[str]) -> int:
    """The lowest number that no link has.  Raises NetworkError."""
    taken = set(present)
    for number in range(MOST):
        if name_of(number) not in taken:
            return number
    raise NetworkError(f"{MOST} corrals have links on this host already")


def addresses(number: int) -> Sequence[tuple[Interface, Interface]]:
    """The addresses of a link for each IP version: the host's end and the other."""
    first = 4 * number + 1
    return (
        (
            IPv4Interface(f"169.254.76.{first}/30"),
            IPv4Interface(f"169.254.76.{first + 1}/30"),
        ),
        (
            IPv6Interface(f"fd00:169:254:4c00::{first:x}/126"),
            IPv6Interface(f"fd00:169:254:4c00::{first + 1:x}/126"),
        ),
    )


def overlapping(
    mine: Network, others: Iterable[tuple[Network, str]]
) -> Iterator[tuple[Network, str]]:
    """The routes to some addresses of a range."""
    for network, device in others:
        if network.version == mine.version and mine.overlaps(network):
            yield network, device


def _lead(link: Netlink, destination: Network, number: int) -> None:
    """Where another leads there already it stays: it may be another corral's."""
    here, there = addresses(number)[0 if destination.version == 4 else 1]
    link.add_route(destination, link=name_of(number), via=there.ip, source=here.ip, replace=False)


def _is_there() -> bool:
    with netlink.opened() as link:
        return bool(link.index(HOST))


def _remove_inner() -> None:
    with netlink.opened() as link:
        link.delete(HOST)


async def remove(directory: Path) -> None:
    """Remove the link of a data directory, whatever has become of its namespace."""

    def removed() -> None:
        with netlink.opened() as link:
            for each in link.links().values():
                if each.alias == alias(directory):
                    link.delete(each.name)

    with Namespace.current() as host:
        await host.call(removed)
