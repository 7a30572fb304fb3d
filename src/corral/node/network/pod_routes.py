"""Routes of the machine namespace to machines of other hosts, whatever the backend.

A route to a pod range leads to the host of its node.  An address that has moved has a route of its
own, which is longer: to the host of its machine, or here by the link of its pod.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from ipaddress import ip_interface
from typing import Final

from corral.node.network.antispoof import LINK_PREFIX
from corral.node.network.namespace_nft_rules import OVERLAY_LINK
from corral.node.network.netlink import Address, Netlink, Network
from corral.node.network.peers import Peer, tunnel_address

GUARD_METRIC: Final = 4096
"""Metric of the unreachable route behind that of a pod's link.

Without it, packets for a machine that has just ended would go to the host of its range, and from
there back here, until all hosts know of its end.
"""


def sync_addresses(link: Netlink, own: Sequence[Network]) -> None:
    """Give the link to other hosts its address of each range of this host, and no other."""
    addresses = {ip_interface((tunnel_address(each), each.max_prefixlen)) for each in own}
    for present in link.addresses(OVERLAY_LINK) - addresses:
        link.delete_address(OVERLAY_LINK, present)
    for address in addresses:
        link.add_address(OVERLAY_LINK, address)


def local_addresses(
    link: Netlink, versions: Iterable[int], left: Collection[Network]
) -> set[Network]:
    """Return the addresses whose machines are here, except for those that have just ``left``.

    The links of pods have them: what the API shows may be late.
    """
    return {
        each
        for version in versions
        for each, device in link.routes(version)
        if device.startswith(LINK_PREFIX) and each not in left
    }


def is_within(inner: Network, outer: Network) -> bool:
    return inner.overlaps(outer) and inner.prefixlen >= outer.prefixlen


def guarded(own: Peer) -> set[Network]:
    """Return the addresses of other hosts' ranges that are unreachable here without their link.

    Those that the API shows here.  Of another one the guest may still be where it was.
    """
    return arrived(own, ())


def arrived(own: Peer, local: Collection[Network]) -> set[Network]:
    """Return the addresses of other hosts' ranges whose machines are here, or have just ended."""
    return {
        each
        for each in (*local, *own.moved)
        if not any(is_within(each, range_) for range_ in own.ranges)
    }


def next_hops(peers: Sequence[Peer], local: Collection[Network]) -> dict[Network, Address]:
    """Return the next hop to each range, and to each address that has moved and is not local."""
    routes = {each: tunnel_address(each) for peer in peers for each in peer.ranges}
    for peer in peers:
        for each in peer.moved:
            via = peer.gateway(each.version)
            if via is not None and each not in local:
                routes[each] = via
    return routes


def sync_routes(
    link: Netlink,
    routes: Mapping[Network, Address],
    *,
    guards: Collection[Network],
    left: Collection[Network],
    versions: Iterable[int],
) -> None:
    """Have these routes to other hosts, each by its next hop, and no others.

    guards: addresses that are unreachable without the link of their pod; left: those whose machines
    have just left the link of their pod.
    """
    for version in versions:
        present = list(link.routes(version))
        for each, device in present:  # before what hides them
            if _is_guard(each, device) and each not in guards:
                link.delete_route(each, metric=GUARD_METRIC)
        for each, device in present:
            is_stale = device == OVERLAY_LINK or (device.startswith(LINK_PREFIX) and each in left)
            if is_stale and each not in routes:
                link.delete_route(each, link=device)
    for each in guards:
        link.add_route(each, metric=GUARD_METRIC)
    for each, via in routes.items():
        link.add_route(each, link=OVERLAY_LINK, via=via, on_link=True)


def _is_guard(network: Network, device: str) -> bool:
    """Report whether a route is an unreachable one, of a single address (IPv6 names a device)."""
    return device in {"", "lo"} and network.prefixlen == network.max_prefixlen
