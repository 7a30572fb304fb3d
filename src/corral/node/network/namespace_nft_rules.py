"""The packet filter of the machine namespace itself, as text; pure.

Pods, Services and policies have tables of their own.  This one lets machines out under the
namespace's address, and keeps them from what is not theirs.
"""

from collections.abc import Iterator, Sequence
from ipaddress import IPv4Network, IPv6Network
from typing import Final

from corral.node.host.destinations import for_guests
from corral.node.network.netlink import Address, Network

TABLE: Final = "inet corral"
OUTWARD: Final = "outward"
"""The link to the world: packets leave by it, and only answers come back."""
INBOUND: Final = "inbound"
"""The link by which the host's ports come in: only what a Service leads on."""
HOST: Final = "host"
"""The link to the host, which root has: the host opens connections, machines do not."""
OWN_LINKS: Final = (OUTWARD, INBOUND, HOST)
API_PORT: Final = 6443
DNS_PORT: Final = 53
MOST_CALLS_AT_ONCE: Final = 128
CALLS_A_SECOND: Final = 50
"""Connections to the API that one address may have and open: each costs a handshake."""
_CALLS_BURST: Final = 2 * MOST_CALLS_AT_ONCE
_MOST_CALLERS: Final = 65536
_FORGET_SECONDS: Final = 10
HOST_RANGES: Final = (IPv4Network("169.254.76.0/24"), IPv6Network("fd00:169:254:4c00::/64"))
"""The addresses of links to the host."""
_DISGUISED: Final[tuple[Network, ...]] = (IPv6Network("::/96"), IPv6Network("::ffff:0:0/96"))
"""An IPv4 address in IPv6's clothes (RFC 4291, 2.5.5), and the unspecified one, mean the host
itself to the sockets of the program that carries packets out."""
_LINKS: Final[dict[int, Network]] = {
    4: IPv4Network("169.254.76.0/22"),
    6: IPv6Network("fd00:10:74::/46"),
}
"""The addresses of the ends of all these links."""
LINK_RANGES: Final[tuple[Network, ...]] = (*_LINKS.values(), *HOST_RANGES)


def rules(gateways: Sequence[Address], allowed: Sequence[Network] = ()) -> str:
    """The transaction that puts the table in place, whatever stood there.

    ``gateways`` are the namespace's own addresses, one for an IP version; ``allowed`` is what the
    administrator lets guests reach that they are kept from otherwise.
    """
    callers = "\n".join(_callers(each) for each in gateways)
    calls = "\n".join(f"    {rule}" for each in gateways for rule in _calls(each))
    # Who only passes through the host is not the host: policies are not asked about that one.
    passing = "\n".join(
        f'    iifname "{HOST}" {_family(each)} saddr != {each} drop'
        for each in HOST_RANGES
        if each.version in {gateway.version for gateway in gateways}
    )
    asked = "\n".join(
        f"    {_family(gateway)} daddr {gateway} {protocol} dport {port} accept"
        for gateway in gateways
        for protocol, port in (("udp", DNS_PORT), ("tcp", DNS_PORT), ("tcp", API_PORT))
    )
    astray = "\n".join(
        f'    oifname "{OUTWARD}" {_family(gateway)} daddr {{ {nowhere} }}'
        " reject with icmpx admin-prohibited"
        for gateway in gateways
        if (nowhere := _nowhere(gateway.version, allowed))
    )
    # Machines know who comes from the host as their gateway: not every guest answers link-locals.
    given = "\n".join(
        f"    {_family(gateway)} saddr {_LINKS[gateway.version]} oifname != {{ {_links()} }}"
        f" snat {_family(gateway)} to {gateway}"
        for gateway in gateways
    )
    return f"""\
table {TABLE}
delete table {TABLE}
table {TABLE} {{
{callers}
  chain postrouting {{
    type nat hook postrouting priority srcnat; policy accept;
    oifname "{OUTWARD}" masquerade
{given}
  }}
  chain input {{
    type filter hook input priority filter; policy drop;
    ct state established,related accept
    iifname "lo" accept
    meta l4proto {{ icmp, ipv6-icmp }} accept
{calls}
{asked}
    meta l4proto tcp reject with tcp reset
    reject with icmpx admin-prohibited
  }}
  chain forward {{
    type filter hook forward priority filter - 10; policy accept;
{passing}
    ct state established,related accept
    ct state invalid drop
    iifname "{INBOUND}" ct status dnat accept
    iifname {{ "{INBOUND}", "{OUTWARD}" }} drop
    oifname {{ "{INBOUND}", "{HOST}" }} iifname != "{HOST}" reject with icmpx admin-prohibited
{astray}
  }}
  chain output {{
    type filter hook output priority filter; policy accept;
    oifname {{ "{INBOUND}", "{HOST}" }} ct state new reject with icmpx admin-prohibited
{astray}
  }}
}}
"""


def _callers(gateway: Address) -> str:
    kind = f"type ipv{gateway.version}_addr; size {_MOST_CALLERS}"
    return f"""\
  set callers{gateway.version} {{ {kind}; flags dynamic; }}
  set calls{gateway.version} {{ {kind}; flags dynamic,timeout; timeout {_FORGET_SECONDS}s; }}"""


def _calls(gateway: Address) -> Iterator[str]:
    """Rules that refuse surplus connections to the API."""
    version, family = gateway.version, _family(gateway)
    call = f"{family} daddr {gateway} tcp dport {API_PORT} ct state new"
    rate = f"limit rate over {CALLS_A_SECOND}/second burst {_CALLS_BURST} packets"
    yield f"{call} update @calls{version} {{ {family} saddr {rate} }} drop"
    count = f"ct count over {MOST_CALLS_AT_ONCE}"
    yield f"{call} add @callers{version} {{ {family} saddr {count} }} reject with tcp reset"


def _nowhere(version: int, allowed: Sequence[Network]) -> str:
    """The addresses that nobody outside has, or that are not for guests."""
    disguised = _DISGUISED if version == 6 else ()
    return ", ".join(map(str, (*disguised, *for_guests(version, allowed))))


def _links() -> str:
    return ", ".join(f'"{each}"' for each in (*OWN_LINKS, "lo"))


def _family(address: Address | IPv4Network | IPv6Network) -> str:
    return "ip" if address.version == 4 else "ip6"
