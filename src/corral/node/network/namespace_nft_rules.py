"""The nftables table of the machine namespace itself, as text.  No I/O.

Pods, Services and policies have tables of their own.  This one masquerades what machines send to
the outside, and restricts what they and others may reach.
"""

from collections.abc import Iterator, Sequence
from ipaddress import IPv4Network, IPv6Network
from typing import Final

from corral.node.host.destinations import forbidden_to_guests
from corral.node.network.netlink import Address, Network

TABLE: Final = "inet corral"
EGRESS_LINK: Final = "outward"
"""The link to the outside: packets leave by it, and only replies come in."""
INGRESS_LINK: Final = "inbound"
"""The link of the host's forwarded ports: only packets to a Service's pods come in."""
HOST_LINK: Final = "host"
"""The link to the host, only with root: the host opens connections, machines do not."""
OVERLAY_LINK: Final = "overlay"
"""The link that leads to the machines of other hosts, whatever the backend."""
OWN_LINKS: Final = (EGRESS_LINK, INGRESS_LINK, HOST_LINK, OVERLAY_LINK)
API_PORT: Final = 6443
DNS_PORT: Final = 53
MAX_API_CONNECTIONS: Final = 128
API_CONNECTIONS_PER_SECOND: Final = 50
"""Connections to the API that one address may hold, and open per second: each costs a handshake.
"""
_API_CONNECTION_BURST: Final = 2 * MAX_API_CONNECTIONS
_MAX_CLIENTS: Final = 65536
_TIMEOUT_SECONDS: Final = 10
HOST_RANGES: Final = (IPv4Network("169.254.76.0/24"), IPv6Network("fd00:169:254:4c00::/64"))
"""The addresses of the links to the host."""
_IPV4_IN_IPV6: Final[tuple[Network, ...]] = (IPv6Network("::/96"), IPv6Network("::ffff:0:0/96"))
"""IPv4 addresses in IPv6 form (RFC 4291, 2.5.5), and the unspecified one: to the sockets of pasta
they mean the host itself.
"""
_LINK_ADDRESSES: Final[dict[int, Network]] = {
    4: IPv4Network("169.254.76.0/22"),
    6: IPv6Network("fd00:10:74::/46"),
}
"""The addresses of the ends of all these links."""
LINK_RANGES: Final[tuple[Network, ...]] = (*_LINK_ADDRESSES.values(), *HOST_RANGES)


def rules(
    gateways: Sequence[Address],
    allowed: Sequence[Network] = (),
    *,
    pod_cidrs: Sequence[Network] = (),
) -> str:
    """Return the transaction that creates the table, or replaces it.

    ``gateways`` are the namespace's own addresses, one for each IP version; ``allowed`` are ranges
    that the administrator lets guests reach although they are forbidden otherwise; ``pod_cidrs``
    are the ranges of all pods of the cluster.
    """
    client_sets = "\n".join(_client_sets(each) for each in gateways)
    api_limits = "\n".join(f"    {rule}" for each in gateways for rule in _api_limits(each))
    # NetworkPolicies exempt the host's own address, so forwarded packets may not use it, nor
    # others.
    spoofed = "\n".join(
        f'    iifname "{HOST_LINK}" {_family(each)} saddr != {each} drop'
        for each in HOST_RANGES
        if each.version in {gateway.version for gateway in gateways}
    )
    services = "\n".join(
        f"    {_family(gateway)} daddr {gateway} {protocol} dport {port} accept"
        for gateway in gateways
        for protocol, port in (("udp", DNS_PORT), ("tcp", DNS_PORT), ("tcp", API_PORT))
    )
    forbidden = "\n".join(
        f'    oifname "{EGRESS_LINK}" {_family(gateway)} daddr {{ {destinations} }}'
        " reject with icmpx admin-prohibited"
        for gateway in gateways
        if (destinations := _forbidden(gateway.version, allowed))
    )
    # Connections from the host get the gateway as their source: not every guest answers
    # link-locals.
    source_nat = "\n".join(
        f"    {_family(gateway)} saddr {_LINK_ADDRESSES[gateway.version]}"
        f" oifname != {{ {_own_link_names()} }} snat {_family(gateway)} to {gateway}"
        for gateway in gateways
    )
    # A packet of another host to a machine that has moved on: its replies do not pass here, so its
    # connection cannot be tracked.
    moved = f'    iifname "{OVERLAY_LINK}" oifname "{OVERLAY_LINK}" accept'
    # The gateway has the same address on every host, and a link to a host is no other host's:
    # replies find the way back only to the address of this host's VXLAN device.
    overlay_nat = "\n".join(
        f'    oifname "{OVERLAY_LINK}" {_family(each)} saddr {source} masquerade'
        for each in pod_cidrs
        for source in (f"!= {each}", str(each[1]))
    )
    foreign = "\n".join(
        f'    iifname "{OVERLAY_LINK}" {_family(each)} saddr != {each} drop' for each in pod_cidrs
    )
    return f"""\
table {TABLE}
delete table {TABLE}
table {TABLE} {{
{client_sets}
  chain postrouting {{
    type nat hook postrouting priority srcnat; policy accept;
    oifname "{EGRESS_LINK}" masquerade
{overlay_nat}
{source_nat}
  }}
  chain input {{
    type filter hook input priority filter; policy drop;
    ct state established,related accept
    iifname "lo" accept
    meta l4proto {{ icmp, ipv6-icmp }} accept
{api_limits}
{services}
    meta l4proto tcp reject with tcp reset
    reject with icmpx admin-prohibited
  }}
  chain forward {{
    type filter hook forward priority filter - 10; policy accept;
{spoofed}
{foreign}
    oifname "{OVERLAY_LINK}" tcp flags syn tcp option maxseg size set rt mtu
{moved}
    ct state established,related accept
    ct state invalid drop
    iifname "{INGRESS_LINK}" ct status dnat accept
    iifname {{ "{INGRESS_LINK}", "{EGRESS_LINK}" }} drop
    oifname {{ "{INGRESS_LINK}", "{HOST_LINK}" }} iifname != "{HOST_LINK}" \
reject with icmpx admin-prohibited
{forbidden}
  }}
  chain output {{
    type filter hook output priority filter; policy accept;
    oifname {{ "{INGRESS_LINK}", "{HOST_LINK}" }} ct state new reject with icmpx admin-prohibited
{forbidden}
  }}
}}
"""


def _client_sets(gateway: Address) -> str:
    kind = f"type ipv{gateway.version}_addr; size {_MAX_CLIENTS}"
    return f"""\
  set callers{gateway.version} {{ {kind}; flags dynamic; }}
  set calls{gateway.version} {{ {kind}; flags dynamic,timeout; timeout {_TIMEOUT_SECONDS}s; }}"""


def _api_limits(gateway: Address) -> Iterator[str]:
    """Return rules that refuse excess connections to the API."""
    version, family = gateway.version, _family(gateway)
    opened = f"{family} daddr {gateway} tcp dport {API_PORT} ct state new"
    rate = (
        f"limit rate over {API_CONNECTIONS_PER_SECOND}/second burst {_API_CONNECTION_BURST} packets"
    )
    yield f"{opened} update @calls{version} {{ {family} saddr {rate} }} drop"
    count = f"ct count over {MAX_API_CONNECTIONS}"
    yield f"{opened} add @callers{version} {{ {family} saddr {count} }} reject with tcp reset"


def _forbidden(version: int, allowed: Sequence[Network]) -> str:
    """Return the destinations that do not exist outside, or that guests may not reach."""
    embedded = _IPV4_IN_IPV6 if version == 6 else ()
    return ", ".join(map(str, (*embedded, *forbidden_to_guests(version, allowed))))


def _own_link_names() -> str:
    return ", ".join(f'"{each}"' for each in (*OWN_LINKS, "lo"))


def _family(address: Address | IPv4Network | IPv6Network) -> str:
    return "ip" if address.version == 4 else "ip6"
