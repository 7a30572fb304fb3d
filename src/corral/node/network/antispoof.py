"""nftables rules that keep guests from spoofing addresses, as text.  No I/O.

There are two layers.  At the tap only frames with the guest's own MAC and IP addresses pass, which
also keeps it from filling neighbour tables; messages that only routers and DHCP servers send are
dropped.  At the machine namespace's end of a pod's link a reverse path filter drops packets whose
source address is not routed back over that link.
"""

from collections.abc import Sequence

from corral.node.network.netlink import Address

TABLE = "corral_guard"
LINK_PREFIX = "pod"
"""Prefix of the names of pod links in the machine namespace."""
_NEIGHBOUR_PACKETS = 50
"""Neighbour discovery messages of one guest per second: a guest needs a handful."""
_DHCP_CLIENT, _DHCP6_CLIENT = 68, 546
"""Client ports: only servers send to them (RFC 2131, RFC 8415)."""
_LINK_PACKETS = 10
_LINK_BURST = 50
"""Packets per second, and burst, that one guest may send from link-local addresses: each address
that is answered takes an entry in the neighbour table, which all namespaces of the host share."""


def machine_rules() -> str:
    """Return the machine namespace's rules: a reverse path filter for pod links (RFC 3704).

    It looks the source address up in the routing table, so it does not change as pods come and go.
    """
    return f"""\
table inet {TABLE}
delete table inet {TABLE}
table inet {TABLE} {{
  chain prerouting {{
    type filter hook prerouting priority raw; policy accept;
    iifname "{LINK_PREFIX}*" fib saddr . iif oif missing drop
  }}
}}
"""


def nic_rules(tap: str, mac: str, addresses: Sequence[Address]) -> str:
    """Return the rules at a guest's tap.

    A guest that has no address yet sends from the unspecified one, and in IPv6 also from link-local
    addresses that it generates itself.
    """
    own_addresses = {
        4: ", ".join(["0.0.0.0", *(str(address) for address in addresses if address.version == 4)]),  # noqa: S104 - no listener
        6: ", ".join(
            ["::", "fe80::/10", *(str(address) for address in addresses if address.version == 6)]
        ),
    }
    return f"""\
table bridge {TABLE} {{
  chain prerouting {{
    type filter hook prerouting priority filter; policy accept;
    iifname != "{tap}" accept
    ether saddr != {mac} drop
    arp saddr ether != {mac} drop
    arp saddr ip != {{ {own_addresses[4]} }} drop
    ip saddr != {{ {own_addresses[4]} }} drop
    ip6 saddr != {{ {own_addresses[6]} }} drop
    icmpv6 type {{ nd-router-advert, nd-redirect }} drop
    icmp type redirect drop
    udp dport {{ {_DHCP_CLIENT}, {_DHCP6_CLIENT} }} drop
    ip6 saddr fe80::/10 limit rate over {_LINK_PACKETS}/second burst {_LINK_BURST} packets drop
    icmpv6 type {{ nd-router-solicit, nd-neighbor-solicit, nd-neighbor-advert }} \
limit rate over {_NEIGHBOUR_PACKETS}/second drop
  }}
}}
"""
