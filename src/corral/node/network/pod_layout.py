"""The layout of a pod's namespace for a VMI and the pod's addresses.  No I/O.

::

    machine namespace            pod namespace, one for each VMI
    podXXXXXXXXXXXX ── veth ── eth0          masquerade: routed and translated
                                 k6t-eth0 ── tap0 ── guest
    podXXXXXXXXXXXX ── veth ── eth0 ╌╌ k6t-eth0 ── tap0 ── guest        bridge

A pod is alone on its link.  Both ends have permanent neighbour entries for each other, so that no
pod can claim another's address, and all traffic between pods is routed, where it can be translated
and filtered.  Names and ranges are KubeVirt's (``eth0``, ``k6t-eth0``, ``tap0``, 10.0.2.0/24).
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
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
from corral.node.network.antispoof import LINK_PREFIX, nic_rules
from corral.node.network.dhcp import Lease, Lease6, Link
from corral.node.network.netlink import Address, Interface as IpInterface, Network
from corral.node.network.resolver import NO_RESOLVER, Resolver, resolve_dns

BRIDGE = "k6t-eth0"
TAP = "tap0"
BRIDGE_MAC = "02:00:00:00:00:00"
"""KubeVirt's; a guest may not use it."""
MACHINE_MAC = "02:00:00:00:00:01"
"""MAC address of the machine namespace's end of every pod link: each link has one pod only."""
USER_NETWORK_6 = "fd10:0:2::/120"
"""KubeVirt's default of PodNetwork.vmIPv6NetworkCIDR, the guest's private range."""
TABLE = "corral_pod"

_GATEWAY_INDEX, _GUEST_INDEX = 1, 2  # in the guest's private range
_ALL_ADDRESSES: Mapping[int, Network] = {4: IPv4Network("0.0.0.0/0"), 6: IPv6Network("::/0")}


@dataclass(frozen=True, slots=True, kw_only=True)
class PodNetworkSettings:
    """Settings that all pods of a node share.

    gateways: the addresses of the machine namespace, the gateways of the pods, one for each IP
    family.
    ranges: the pod CIDRs.
    dns: the cluster's name servers; domain: the cluster domain; host: the host's DNS configuration.
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
class LinkConfig:
    """The configuration of one link."""

    name: str
    mac: str
    addresses: tuple[IpInterface, ...] = ()
    neighbours: tuple[tuple[Address, str], ...] = ()
    routes: tuple[tuple[Network, Address | None], ...] = ()
    """Destinations, each with its gateway, or None if it is on the link."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Nic:
    """The host's side of the guest's network interface; ``name`` is that of the VMI's interface."""

    name: str
    tap: str
    bridge: LinkConfig
    joins_pod_link: bool
    """True if the pod's link is a port of the bridge, so that the guest has the pod's address."""
    dhcp_link: Link


@dataclass(frozen=True, slots=True, kw_only=True)
class GuestLayout:
    """The guest's network interface behind a pod's interface, and its rules."""

    nic: Nic | None
    pod_sysctls: tuple[tuple[str, int], ...]
    """Sysctls under /proc/sys/net in the pod namespace."""
    rules: str
    """The nftables rules of a new pod namespace."""
    mtu: int
    pod_mac: str
    """MAC address of the pod's interface, which is never the guest's."""

    @property
    def replacement_rules(self) -> str:
        """The rules as a transaction that replaces existing tables.

        It deletes tables, which costs the kernel many milliseconds: new namespaces use ``rules``.
        """
        tables = (f"inet {TABLE}", f"bridge {antispoof.TABLE}")
        return "".join(f"table {one}\ndelete table {one}\n" for one in tables) + self.rules


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout(GuestLayout):
    """The two ends of a pod's link, and the guest's network interface."""

    machine_end: LinkConfig
    pod_end: LinkConfig
    machine_sysctls: tuple[tuple[str, int], ...]
    """Sysctls under /proc/sys/net in the machine namespace."""
    addresses: tuple[Address, ...] = ()
    """The pod's."""
    later: LinkConfig | None = None
    """The machine namespace's end of the link once the addresses lead to it; None if they do."""

    def held(self) -> "Layout":
        """Return the layout while the addresses lead to another machine."""
        end = replace(self.machine_end, routes=(), neighbours=())
        return self if self.later else replace(self, machine_end=end, later=self.machine_end)

    def whole(self) -> "Layout":
        """Return the layout once the addresses lead here."""
        return replace(self, machine_end=self.later, later=None) if self.later else self


def link_name(uid: str) -> str:
    """Return the name of a pod link in the machine namespace: 15 characters, the kernel's limit."""
    return LINK_PREFIX + hashlib.blake2b(uid.encode(), digest_size=6).hexdigest()


def interface_of(vmi: VirtualMachineInstance) -> Interface | None:
    """Return the interface on the pod network: a VMI has at most one, and it may be ``absent``."""
    pods = {one.name for one in vmi.spec.networks if one.pod is not None}
    interfaces = vmi.spec.domain.devices.interfaces
    return next((one for one in interfaces if one.name in pods and one.state != "absent"), None)


def families(vmi: VirtualMachineInstance) -> tuple[int, ...]:
    """Return the IP versions that a pod needs addresses of.

    With ``bridge`` the guest gets the pod's address by DHCPv4 only, as in KubeVirt.
    """
    interface = interface_of(vmi)
    return (4, 6) if interface is None or interface.masquerade is not None else (4,)


def plan(
    vmi: VirtualMachineInstance,
    addresses: Sequence[Address],
    settings: PodNetworkSettings,
    *,
    link: str = "",
) -> Layout:
    """Return the layout of the pod of a VMI with these addresses, one for each IP family.

    link: the name of its link in the machine namespace, by default that of the VMI.
    """
    uid = vmi.metadata.uid
    link = link or link_name(uid)
    guest = plan_guest(vmi, addresses, settings)
    nic, pod_mac = guest.nic, guest.pod_mac
    is_bridged = nic is not None and nic.joins_pod_link
    return Layout(
        machine_end=LinkConfig(
            name=link,
            mac=MACHINE_MAC,
            routes=tuple((_host_network(one), None) for one in addresses),
            neighbours=tuple(
                (one, nic.dhcp_link.guest if nic is not None and is_bridged else pod_mac)
                for one in addresses
            ),
        ),
        pod_end=LinkConfig(name=POD_INTERFACE, mac=pod_mac)
        if is_bridged
        else LinkConfig(
            name=POD_INTERFACE,
            mac=pod_mac,
            addresses=tuple(ip_interface(one) for one in addresses),
            neighbours=tuple((settings.gateway(one.version), MACHINE_MAC) for one in addresses),
            routes=tuple(_routes(addresses, settings)),
        ),
        nic=nic,
        machine_sysctls=tuple(_machine_sysctls(link, addresses, is_bridged=is_bridged)),
        pod_sysctls=guest.pod_sysctls,
        rules=guest.rules,
        mtu=guest.mtu,
        pod_mac=pod_mac,
        addresses=tuple(addresses),
    )


def plan_guest(
    vmi: VirtualMachineInstance, addresses: Sequence[Address], settings: PodNetworkSettings
) -> GuestLayout:
    """Return what stands behind the interface of a pod with these addresses."""
    interface = interface_of(vmi)
    nic, rules = None, ""
    if interface is not None and interface.masquerade is not None:
        nic, rules = _masquerade(vmi, interface, addresses, settings)
    elif interface is not None:
        nic, rules = _bridge(vmi, interface, addresses, settings)
    return GuestLayout(
        nic=nic,
        pod_sysctls=_pod_sysctls(addresses),
        rules=rules,
        mtu=settings.mtu,
        pod_mac=mac(vmi.metadata.uid, ""),
    )


def _host_network(address: Address) -> Network:
    """Return the network of a single address: pods are reached by host routes only."""
    return ip_network(address)


def _routes(
    addresses: Sequence[Address], settings: PodNetworkSettings
) -> Iterator[tuple[Network, Address | None]]:
    for one in addresses:
        gateway = settings.gateway(one.version)
        yield _host_network(gateway), None
        yield _ALL_ADDRESSES[one.version], gateway


def _machine_sysctls(
    link: str, addresses: Sequence[Address], *, is_bridged: bool
) -> Iterator[tuple[str, int]]:
    if all(one.version == 4 for one in addresses):
        yield f"ipv6/conf/{link}/disable_ipv6", 1
    if is_bridged:
        # The guest has an address with the prefix of the range, and resolves all others by ARP.
        yield f"ipv4/conf/{link}/proxy_arp", 1
        yield f"ipv4/neigh/{link}/proxy_delay", 0


def _pod_sysctls(addresses: Sequence[Address]) -> tuple[tuple[str, int], ...]:
    settings = [
        ("ipv4/ip_forward", 1),
        # Bridged packets bypass the rules for routed ones.
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
    vmi: VirtualMachineInstance,
    interface: Interface,
    addresses: Sequence[Address],
    settings: PodNetworkSettings,
) -> tuple[Nic, str]:
    ranges = [_private_range(vmi, interface.name, one.version) for one in addresses]
    routers = tuple(ip_interface((one[_GATEWAY_INDEX], one.prefixlen)) for one in ranges)
    guests = [one[_GUEST_INDEX] for one in ranges]
    guest_mac = mac_of(vmi, interface)
    lease, lease6 = None, None
    for network in ranges:
        if isinstance(network, IPv4Network):
            lease = _lease(
                vmi,
                interface,
                settings,
                address=IPv4Interface((network[_GUEST_INDEX], network.prefixlen)),
                gateway=network[_GATEWAY_INDEX],
            )
        else:
            lease6 = Lease6(
                address=IPv6Interface((network[_GUEST_INDEX], network.prefixlen)),
                dns=tuple(IPv6Address(one) for one in _dns(vmi, settings).servers if ":" in one),
                search=tuple(_dns(vmi, settings).searches),
                mtu=settings.mtu,
            )
    nic = Nic(
        name=interface.name,
        tap=TAP,
        bridge=LinkConfig(
            name=BRIDGE,
            mac=BRIDGE_MAC,
            addresses=routers,
            neighbours=tuple((one, guest_mac) for one in guests),
        ),
        joins_pod_link=False,
        dhcp_link=Link(BRIDGE, guest_mac, BRIDGE_MAC, lease, lease6),
    )
    pairs = list(zip(addresses, guests, strict=True))
    return nic, nic_rules(TAP, guest_mac, guests) + nat_rules(pairs, interface.ports)


def _bridge(
    vmi: VirtualMachineInstance,
    interface: Interface,
    addresses: Sequence[Address],
    settings: PodNetworkSettings,
) -> tuple[Nic, str]:
    guest_mac = mac_of(vmi, interface)
    lease = None
    for address in addresses:
        if isinstance(address, IPv4Address):
            ranges = (one for one in settings.ranges if address in one)
            network = next(ranges, ip_network(address))
            gateway = settings.gateway(4)
            assert isinstance(gateway, IPv4Address)
            interface_address = IPv4Interface((address, network.prefixlen))
            lease = _lease(vmi, interface, settings, address=interface_address, gateway=gateway)
    nic = Nic(
        name=interface.name,
        tap=TAP,
        bridge=LinkConfig(name=BRIDGE, mac=BRIDGE_MAC),
        joins_pod_link=True,
        dhcp_link=Link(BRIDGE, guest_mac, BRIDGE_MAC, lease),
    )
    return nic, nic_rules(TAP, guest_mac, addresses)


def _private_range(vmi: VirtualMachineInstance, name: str, version: int) -> Network:
    networks = (one.pod for one in vmi.spec.networks if one.name == name and one.pod is not None)
    pod = next(networks, PodNetwork())
    if version == 4:
        return IPv4Network(pod.vm_network_cidr or USER_NETWORK, strict=False)
    return IPv6Network(pod.vm_ipv6_network_cidr or USER_NETWORK_6, strict=False)


def _lease(
    vmi: VirtualMachineInstance,
    interface: Interface,
    settings: PodNetworkSettings,
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
        dns=tuple(_addresses(_dns(vmi, settings).servers)),
        search=tuple(_dns(vmi, settings).searches),
        mtu=settings.mtu,
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
    """Return the valid IPv4 addresses; DHCP has no others (KubeVirt ignores them, too)."""
    for text in texts:
        with suppress(AddressValueError):
            yield IPv4Address(text)


def _dns(vmi: VirtualMachineInstance, settings: PodNetworkSettings) -> Resolver:
    """Return the DNS configuration of a VMI."""
    return resolve_dns(
        vmi.spec,
        vmi.metadata.namespace,
        cluster=[str(one) for one in settings.dns],
        domain=settings.domain,
        host=settings.host,
    )


def nat_rules(pairs: Sequence[tuple[Address, Address]], ports: Sequence[Port]) -> str:
    """Return the NAT rules: DNAT from the pod's addresses to the guest's, SNAT back.

    ``pairs``: the pod's and the guest's address for each IP family.  With ``ports`` only those are
    forwarded to the guest.
    """
    inbound_rules = [
        f'iifname "{POD_INTERFACE}" {_family(pod)} daddr {pod} {port}dnat {_family(pod)} to {guest}'
        for pod, guest in pairs
        for port in _port_matches(ports)
    ]
    outbound_rules = [
        f'oifname "{POD_INTERFACE}" {_family(pod)} saddr {guest} snat {_family(pod)} to {pod}'
        for pod, guest in pairs
    ]
    return "\n".join(
        (
            f"table inet {TABLE} {{",
            "  chain prerouting {",
            "    type nat hook prerouting priority dstnat; policy accept;",
            *(f"    {rule}" for rule in inbound_rules),
            "  }",
            "  chain postrouting {",
            "    type nat hook postrouting priority srcnat; policy accept;",
            *(f"    {rule}" for rule in outbound_rules),
            "  }",
            "  chain forward {",
            "    type filter hook forward priority filter; policy accept;",
            # Only the guest is on the bridge: packets to other addresses there would cause
            # neighbour discovery.
            f'    iifname "{BRIDGE}" oifname != "{POD_INTERFACE}" drop',
            "  }",
            "}",
            "",
        )
    )


def _family(address: Address) -> str:
    return "ip" if address.version == 4 else "ip6"


def _port_matches(ports: Sequence[Port]) -> Iterator[str]:
    """Return matches for the declared ports; one that matches all if none is declared.

    Undeclared ports are closed to new connections only: a guest that migrates brings its own along,
    and the first packet here may be the peer's, which would be answered with a reset.
    """
    if not ports:
        yield ""
        return
    yield "tcp flags & syn == 0x0 "
    for protocol in ("tcp", "udp"):
        numbers = sorted({one.port for one in ports if (one.protocol or "TCP").lower() == protocol})
        if numbers:
            yield f"{protocol} dport {{ {', '.join(str(one) for one in numbers)} }} "
