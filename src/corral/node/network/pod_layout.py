"""An instance and its pod's addresses as the layout of the pod's namespace.  Pure.

::

    machine's namespace          pod's namespace, one an instance
    podXXXXXXXXXXXX ── veth ── eth0          masquerade: routed and translated
                                 k6t-eth0 ── tap0 ── guest
    podXXXXXXXXXXXX ── veth ── eth0 ╌╌ k6t-eth0 ── tap0 ── guest        bridge

A pod is a host of its own behind a link of its own: both ends know by heart which hardware address
the other has, so nobody can take another's place, and all traffic between pods is routed, where it
can be translated and filtered.  Names and ranges are KubeVirt's (``eth0``, ``k6t-eth0``, ``tap0``,
10.0.2.0/24).
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import (
    AddressValueError,
    IPv4Address,
    IPv4Interface,
    IPv4Network,
    IPv6Address,
    IPv6Interface,
    IPv6Network,
    ip_interface,
    ip_network,
)

from corral.api.kinds.vmi.addresses import POD_INTERFACE, USER_NETWORK, mac, mac_of
from corral.api.kinds.vmi.derived import host_name
from corral.api.kinds.vmi.networks import Interface, PodNetwork, Port
from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.node.network import antispoof
from corral.node.network.antispoof import LINK_PREFIX, card_rules
from corral.node.network.dhcp import Lease, Lease6, Link
from corral.node.network.netlink import Address, Interface as Assigned, Network
from corral.node.network.resolver import NO_RESOLVER, Resolver, resolver

BRIDGE = "k6t-eth0"
TAP = "tap0"
BRIDGE_MAC = "02:00:00:00:00:00"
"""KubeVirt's; a guest may not choose it."""
MACHINE_MAC = "02:00:00:00:00:01"
"""Of the machine's end of every pod's link: each is alone on its link with the pod."""
USER_NETWORK_6 = "fd10:0:2::/120"
"""KubeVirt's default for a guest's private range (PodNetwork.vmIPv6NetworkCIDR)."""
TABLE = "corral_pod"

_GATEWAY, _GUEST = 1, 2  # in a private range
_ANYWHERE: Mapping[int, Network] = {4: IPv4Network("0.0.0.0/0"), 6: IPv6Network("::/0")}


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """What all pods of a machine have in common.

    gateways: the machine's address towards its pods, one a family.
    ranges: those of all its pods' addresses.
    dns: where names are looked up; domain: what the names of the cluster end in; host: how the
    host itself looks names up.
    mtu: the largest packet, in bytes.
    """

    gateways: tuple[Address, ...]
    ranges: tuple[Network, ...]
    dns: tuple[Address, ...] = ()
    domain: str = "cluster.local"
    host: Resolver = NO_RESOLVER
    mtu: int = 1500

    def gateway(self, version: int) -> Address:
        return next(one for one in self.gateways if one.version == version)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fittings:
    """What is set on one link."""

    name: str
    mac: str
    addresses: tuple[Assigned, ...] = ()
    neighbours: tuple[tuple[Address, str], ...] = ()
    routes: tuple[tuple[Network, Address | None], ...] = ()
    """Destinations with the router on the way, or None: it is on the link."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """The host's end of the guest's network card; ``name`` is the interface's in the instance."""

    name: str
    tap: str
    bridge: Fittings
    joins_pod_link: bool
    """Whether the pod's link is a port of the bridge also, so that the guest is the pod."""
    told: Link


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """A pod's link, from either end, and what is behind it."""

    machine_end: Fittings
    pod_end: Fittings
    card: Card | None
    machine_settings: tuple[tuple[str, int], ...]
    """Settings under /proc/sys/net in the machine's namespace."""
    pod_settings: tuple[tuple[str, int], ...]
    rules: str
    """The packet filter of the pod's namespace, where there is none yet."""
    mtu: int

    @property
    def renewed_rules(self) -> str:
        """The packet filter in place of what there is, in the same moment.

        A table that was there before costs the kernel a pause of many milliseconds.
        """
        tables = (f"inet {TABLE}", f"bridge {antispoof.TABLE}")
        return "".join(f"table {one}\ndelete table {one}\n" for one in tables) + self.rules


def link_name(uid: str) -> str:
    """The name of the machine's end of a pod's link: as long as names of links may be."""
    return LINK_PREFIX + hashlib.blake2b(uid.encode(), digest_size=6).hexdigest()


def interface_of(vmi: VirtualMachineInstance) -> Interface | None:
    """The card on the pod network: an instance has one at most, and it may be ``absent``."""
    pods = {one.name for one in vmi.spec.networks if one.pod is not None}
    cards = vmi.spec.domain.devices.interfaces
    return next((one for one in cards if one.name in pods and one.state != "absent"), None)


def families(vmi: VirtualMachineInstance) -> tuple[int, ...]:
    """The versions of IP that a pod needs addresses of.

    A guest that is the pod itself (``bridge``) is given its address by DHCP alone, as in KubeVirt.
    """
    interface = interface_of(vmi)
    return (4, 6) if interface is None or interface.masquerade is not None else (4,)


def plan(vmi: VirtualMachineInstance, addresses: Sequence[Address], site: Site) -> Layout:
    """The layout of an instance's pod that has these addresses, one a family."""
    interface = interface_of(vmi)
    uid = vmi.metadata.uid
    pod_mac = mac(uid, "")
    card, rules = None, ""
    if interface is not None and interface.masquerade is not None:
        card, rules = _masquerade(vmi, interface, addresses, site)
    elif interface is not None:
        card, rules = _bridge(vmi, interface, addresses, site)
    bridged = card is not None and card.joins_pod_link
    return Layout(
        machine_end=Fittings(
            name=link_name(uid),
            mac=MACHINE_MAC,
            routes=tuple((_alone(one), None) for one in addresses),
            neighbours=tuple(
                (one, card.told.guest if card is not None and bridged else pod_mac)
                for one in addresses
            ),
        ),
        pod_end=Fittings(name=POD_INTERFACE, mac=pod_mac)
        if bridged
        else Fittings(
            name=POD_INTERFACE,
            mac=pod_mac,
            addresses=tuple(ip_interface(one) for one in addresses),
            neighbours=tuple((site.gateway(one.version), MACHINE_MAC) for one in addresses),
            routes=tuple(_routes(addresses, site)),
        ),
        card=card,
        machine_settings=tuple(_machine_settings(link_name(uid), addresses, bridged=bridged)),
        pod_settings=_pod_settings(addresses),
        rules=rules,
        mtu=site.mtu,
    )


def _alone(address: Address) -> Network:
    """The network that is one address: pods are reached by routes only."""
    return ip_network(address)


def _routes(addresses: Sequence[Address], site: Site) -> Iterator[tuple[Network, Address | None]]:
    for one in addresses:
        gateway = site.gateway(one.version)
        yield _alone(gateway), None
        yield _ANYWHERE[one.version], gateway


def _machine_settings(
    link: str, addresses: Sequence[Address], *, bridged: bool
) -> Iterator[tuple[str, int]]:
    if all(one.version == 4 for one in addresses):
        yield f"ipv6/conf/{link}/disable_ipv6", 1
    if bridged:
        # A guest that has the pod's address asks for all others of the range as for neighbours.
        yield f"ipv4/conf/{link}/proxy_arp", 1
        yield f"ipv4/neigh/{link}/proxy_delay", 0


def _pod_settings(addresses: Sequence[Address]) -> tuple[tuple[str, int], ...]:
    settings = [
        ("ipv4/ip_forward", 1),
        # What crosses the bridge is not the business of the rules for what is routed.
        ("bridge/bridge-nf-call-iptables", 0),
        ("bridge/bridge-nf-call-ip6tables", 0),
        ("bridge/bridge-nf-call-arptables", 0),
    ]
    if any(one.version == 6 for one in addresses):
        settings += [("ipv6/conf/default/accept_dad", 0), ("ipv6/conf/all/forwarding", 1)]
    else:
        settings.append(("ipv6/conf/all/disable_ipv6", 1))
    return tuple(settings)


def _masquerade(
    vmi: VirtualMachineInstance, interface: Interface, addresses: Sequence[Address], site: Site
) -> tuple[Card, str]:
    ranges = [_private_range(vmi, interface.name, one.version) for one in addresses]
    routers = tuple(ip_interface((one[_GATEWAY], one.prefixlen)) for one in ranges)
    guests = [one[_GUEST] for one in ranges]
    guest_mac = mac_of(vmi, interface)
    lease, lease6 = None, None
    for network in ranges:
        if isinstance(network, IPv4Network):
            lease = _lease(
                vmi,
                interface,
                site,
                address=IPv4Interface((network[_GUEST], network.prefixlen)),
                gateway=network[_GATEWAY],
            )
        else:
            lease6 = Lease6(
                address=IPv6Interface((network[_GUEST], network.prefixlen)),
                dns=tuple(IPv6Address(one) for one in _names(vmi, site).servers if ":" in one),
                search=tuple(_names(vmi, site).searches),
                mtu=site.mtu,
            )
    card = Card(
        name=interface.name,
        tap=TAP,
        bridge=Fittings(
            name=BRIDGE,
            mac=BRIDGE_MAC,
            addresses=routers,
            neighbours=tuple((one, guest_mac) for one in guests),
        ),
        joins_pod_link=False,
        told=Link(BRIDGE, guest_mac, BRIDGE_MAC, lease, lease6),
    )
    pairs = list(zip(addresses, guests, strict=True))
    return card, card_rules(TAP, guest_mac, guests) + translation(pairs, interface.ports)


def _bridge(
    vmi: VirtualMachineInstance, interface: Interface, addresses: Sequence[Address], site: Site
) -> tuple[Card, str]:
    guest_mac = mac_of(vmi, interface)
    lease = None
    for address in addresses:
        if isinstance(address, IPv4Address):
            ranges = (one for one in site.ranges if address in one)
            network = next(ranges, ip_network(address))
            gateway = site.gateway(4)
            assert isinstance(gateway, IPv4Address)
            whole = IPv4Interface((address, network.prefixlen))
            lease = _lease(vmi, interface, site, address=whole, gateway=gateway)
    card = Card(
        name=interface.name,
        tap=TAP,
        bridge=Fittings(name=BRIDGE, mac=BRIDGE_MAC),
        joins_pod_link=True,
        told=Link(BRIDGE, guest_mac, BRIDGE_MAC, lease),
    )
    return card, card_rules(TAP, guest_mac, addresses)


def _private_range(vmi: VirtualMachineInstance, name: str, version: int) -> Network:
    networks = (one.pod for one in vmi.spec.networks if one.name == name and one.pod is not None)
    pod = next(networks, PodNetwork())
    if version == 4:
        return IPv4Network(pod.vm_network_cidr or USER_NETWORK, strict=False)
    return IPv6Network(pod.vm_ipv6_network_cidr or USER_NETWORK_6, strict=False)


def _lease(
    vmi: VirtualMachineInstance,
    interface: Interface,
    site: Site,
    *,
    address: IPv4Interface,
    gateway: IPv4Address,
) -> Lease:
    options = interface.dhcp_options
    servers = list(_addresses(options.ntp_servers)) if options is not None else []
    return Lease(
        address=address,
        server=gateway,
        gateway=gateway,
        dns=tuple(_addresses(_names(vmi, site).servers)),
        search=tuple(_names(vmi, site).searches),
        mtu=site.mtu,
        hostname=host_name(vmi),
        boot_file_name=options.boot_file_name if options is not None else "",
        tftp_server_name=options.tftp_server_name if options is not None else "",
        ntp_servers=tuple(servers),
        private_options=tuple(
            (one.option, one.value.encode())
            for one in (options.private_options if options is not None else ())
        ),
    )


def _addresses(texts: Sequence[str]) -> Iterator[IPv4Address]:
    """Those that are addresses: DHCP can tell no others (KubeVirt leaves them out, too)."""
    for text in texts:
        with suppress(AddressValueError):
            yield IPv4Address(text)


def _names(vmi: VirtualMachineInstance, site: Site) -> Resolver:
    """Who looks names up for an instance, and where short ones are looked for."""
    return resolver(
        vmi.spec,
        vmi.metadata.namespace,
        cluster=[str(one) for one in site.dns],
        domain=site.domain,
        host=site.host,
    )


def translation(pairs: Sequence[tuple[Address, Address]], ports: Sequence[Port]) -> str:
    """Rules that lead what comes for the pod to its guest, and send the guest's as the pod's.

    ``pairs``: a pod's and its guest's address, one pair a family.  With ``ports`` only those lead
    to the guest.
    """
    inward = [
        f'iifname "{POD_INTERFACE}" {_family(pod)} daddr {pod} {port}dnat {_family(pod)} to {guest}'
        for pod, guest in pairs
        for port in _matches(ports)
    ]
    outward = [
        f'oifname "{POD_INTERFACE}" {_family(pod)} saddr {guest} snat {_family(pod)} to {pod}'
        for pod, guest in pairs
    ]
    return "\n".join(
        (
            f"table inet {TABLE} {{",
            "  chain prerouting {",
            "    type nat hook prerouting priority dstnat; policy accept;",
            *(f"    {rule}" for rule in inward),
            "  }",
            "  chain postrouting {",
            "    type nat hook postrouting priority srcnat; policy accept;",
            *(f"    {rule}" for rule in outward),
            "  }",
            "  chain forward {",
            "    type filter hook forward priority filter; policy accept;",
            # The guest is alone there: what it sends to others would be asked for as neighbours.
            f'    iifname "{BRIDGE}" oifname != "{POD_INTERFACE}" drop',
            "  }",
            "}",
            "",
        )
    )


def _family(address: Address) -> str:
    return "ip" if address.version == 4 else "ip6"


def _matches(ports: Sequence[Port]) -> Iterator[str]:
    """The part of a rule that picks the declared ports; one that picks all where none is."""
    if not ports:
        yield ""
    for protocol in ("tcp", "udp"):
        numbers = sorted({one.port for one in ports if (one.protocol or "TCP").lower() == protocol})
        if numbers:
            yield f"{protocol} dport {{ {', '.join(str(one) for one in numbers)} }} "
