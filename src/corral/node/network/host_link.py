"""The link between the host and the machine namespace, which requires root.

By it the host reaches pods and Services at their addresses.  It is a veth pair, which the kernel
removes with the namespace; nothing else of the host is changed.  Several corrals may each have one.
"""

from collections.abc import Iterable, Iterator, Sequence
from ipaddress import IPv4Interface, IPv6Interface
from pathlib import Path
from typing import Final

from corral.node.network import netlink
from corral.node.network.namespace_nft_rules import HOST_LINK
from corral.node.network.namespaces import Namespace
from corral.node.network.netlink import Interface, Link, Netlink, Network, NetworkError

MAX_LINKS: Final = 64
"""Most corrals that may have a link on one host."""
_ALIAS: Final = "corral "
_RANGES_HINT: Final = (
    "end this corral (corral down), and start it with other ranges: --pod-cidr and --service-cidr"
)


class HostLink:
    """The link of one data directory, whose path is the link's alias on the host.

    foreign: ranges of which others may lead parts elsewhere.
    """

    def __init__(
        self,
        directory: Path,
        namespace: Namespace,
        ranges: Sequence[Network],
        *,
        foreign: Sequence[Network] = (),
    ) -> None:
        self.problems: Sequence[str] = ()
        self._alias = alias(directory)
        self._namespace = namespace
        self._host = Namespace.current()
        self._ranges = ranges
        self._foreign = foreign

    async def ensure(self) -> None:
        """Create what is missing of the link; ``problems`` says what cannot be created."""
        try:
            number = await self._host.call(self._ensure_pair)
            await self._namespace.call(self._configure_inner_end, number)
            self.problems = await self._host.call(self._add_routes, number)
        except NetworkError as error:
            self.problems = [f"the host cannot reach machines: {error.full_message}"]

    def close(self) -> None:
        """Close the descriptor of the host's namespace; the link stays."""
        self._host.close()

    def _ensure_pair(self) -> int:
        """Return the number of the link, on the host; create the link if either end is missing."""
        with netlink.opened() as link:
            present = link.links()
            for each in present.values():
                if each.alias == self._alias:
                    if self._namespace.run(_inner_end_exists):
                        self._configure_host_end(link, each.name)
                        return link_number(each.name)
                    link.delete(each.name)
            # A manager that was killed before it set the alias has left the inner end: remove the
            # pair.
            self._namespace.run(_remove_inner)
            name = self._create_pair(link)
            link.change(name, alias=self._alias)
            self._configure_host_end(link, name)
            return link_number(name)

    def _create_pair(self, link: Netlink) -> str:
        """Create a veth pair under the lowest free number, on the host."""
        while True:
            name = link_name(free_number(link.links()))
            try:
                link.add_veth(name, peer=HOST_LINK, peer_namespace=self._namespace.descriptor)
            except NetworkError:
                if not link.index(name):
                    raise
                continue  # another corral has taken the number meanwhile
            return name

    def _configure_host_end(self, link: Netlink, name: str) -> None:
        """Bring the link up on the host, with its addresses."""
        link.change(name)
        for address, _ in addresses(link_number(name)):
            if self._has(address):
                link.add_address(name, address)

    def _configure_inner_end(self, number: int) -> None:
        """Configure the end in the machine namespace."""
        with netlink.opened() as link:
            link.change(HOST_LINK)
            for _, address in addresses(number):
                if self._has(address):
                    link.add_address(HOST_LINK, address)

    def _add_routes(self, number: int) -> Sequence[str]:
        """Add routes to pods and Services on the host; return conflicting routes."""
        name = link_name(number)
        with netlink.opened() as link:
            routes = {
                version: [
                    (network, device)
                    for network, device in link.routes(version)
                    if device != name and network.prefixlen > 0
                ]
                for version in {each.version for each in self._ranges}
            }
            for each in self._ranges:
                _add_routes(link, each, number)
            present = link.links()
            conflicts = {
                f"{network} ({_owner(present.get(device), device)})"
                for each in self._ranges
                for network, device in overlapping(each, routes[each.version])
                if each not in self._foreign or network.prefixlen <= each.prefixlen
            }
        if not conflicts:
            return ()
        where = ", ".join(sorted(conflicts))
        problem = f"this host has other routes to {where}, and may not reach these"
        return (f"{problem} machines and Services by itself; {_RANGES_HINT}",)

    def _has(self, address: Interface) -> bool:
        return address.version in {each.version for each in self._ranges}


def alias(directory: Path) -> str:
    """Return the alias of the link of a data directory."""
    return f"{_ALIAS}{directory.absolute()}"[-255:]


def link_name(number: int) -> str:
    return f"corral{number}"


def link_number(name: str) -> int:
    return int(name.removeprefix("corral"))


def free_number(present: Iterable[str]) -> int:
    """Return the lowest number that no link has.  Raises NetworkError."""
    present = set(present)
    for number in range(MAX_LINKS):
        if link_name(number) not in present:
            return number
    raise NetworkError(f"{MAX_LINKS} corrals have links on this host already")


def addresses(number: int) -> Sequence[tuple[Interface, Interface]]:
    """Return the addresses of a link for each IP version: the host's end and the inner end."""
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
    range_: Network, routes: Iterable[tuple[Network, str]]
) -> Iterator[tuple[Network, str]]:
    """Return the routes that overlap with a range."""
    for network, device in routes:
        if network.version == range_.version and range_.overlaps(network):
            yield network, device


def _add_routes(link: Netlink, destination: Network, number: int) -> None:
    """Add the missing routes.  One that leads elsewhere stays: it may be another corral's."""
    host_address, inner_address = addresses(number)[0 if destination.version == 4 else 1]
    link.add_route(
        destination,
        link=link_name(number),
        via=inner_address.ip,
        source=host_address.ip,
        replace=False,
    )


def _owner(link: Link | None, name: str) -> str:
    """Return who has a route: a device, and the data directory if it is another corral's."""
    if link is None or not link.alias.startswith(_ALIAS):
        return name or "nowhere"
    return f"{name}, the corral of {Path(link.alias.removeprefix(_ALIAS)).parent}"


def _inner_end_exists() -> bool:
    with netlink.opened() as link:
        return bool(link.index(HOST_LINK))


def _remove_inner() -> None:
    with netlink.opened() as link:
        link.delete(HOST_LINK)


async def remove(directory: Path) -> None:
    """Remove the link of a data directory, even if its namespace is gone."""

    def remove_links() -> None:
        with netlink.opened() as link:
            for each in link.links().values():
                if each.alias == alias(directory):
                    link.delete(each.name)

    with Namespace.current() as host:
        await host.call(remove_links)
