"""The packet filter of the machine namespace itself, as text; pure.

Pods, Services and policies have tables of their own.  This one lets machines out under the
namespace's address, and keeps them from what is not theirs.
"""

from collections.abc import Sequence
from ipaddress import IPv4Network, IPv6Network
from typing import Final

from corral.node.network.netlink import Address

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
HOST_RANGES: Final = (IPv4Network("169.254.76.0/24"), IPv6Network("fd00:10:76::/64"))
"""The addresses of links to the host."""
_ASTRAY: Final = {4: "169.254.0.0/16", 6: "{ ::/96, ::ffff:0:0/96, fd00:ec2::254 }"}
"""What nobody outside has.  Routers do not pass link-locals on (RFC 3927, 7): behind one is a
cloud's metadata, as behind the last.  An IPv4 address in IPv6's clothes (RFC 4291, 2.5.5), and the
unspecified one, mean the host itself to the sockets of the program that carries packets out."""
_LINKS: Final = {4: "169.254.76.0/22", 6: "fd00:10:74::/46"}
"""The addresses of the ends of all these links."""


def rules(gateways: Sequence[Address]) -> str:
    """The transaction that puts the table in place, whatever stood there.

    ``gateways`` are the namespace's own addresses, one for an IP version.
    """
    asked = "\n".join(
        f"    {_family(gateway)} daddr {gateway} {protocol} dport {port} accept"
        for gateway in gateways
        for protocol, port in (("udp", DNS_PORT), ("tcp", DNS_PORT), ("tcp", API_PORT))
    )
    astray = "\n".join(
        f'    oifname "{OUTWARD}" {_family(gateway)} daddr {_ASTRAY[gateway.version]}'
        " reject with icmpx admin-prohibited"
        for gateway in gateways
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
{asked}
    meta l4proto tcp reject with tcp reset
    reject with icmpx admin-prohibited
  }}
  chain forward {{
    type filter hook forward priority filter - 10; policy accept;
    ct state established,related accept
    ct state invalid drop
    iifname "{INBOUND}" ct status dnat accept
    iifname {{ "{INBOUND}", "{OUTWARD}" }} drop
    oifname {{ "{INBOUND}", "{HOST}" }} iifname != "{HOST}" reject with icmpx admin-prohibited
{astray}
  }}
  chain output {{
    type filter hook output priority filter; policy accept;
{astray}
  }}
}}
"""


def _links() -> str:
    return ", ".join(f'"{each}"' for each in (*OWN_LINKS, "lo"))


def _family(address: Address) -> str:
    return "ip" if address.version == 4 else "ip6"
