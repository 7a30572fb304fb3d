"""What keeps a guest from speaking in another's name: rules of the packet filter, as text.  Pure.

Two guards, one behind the other.  At the card nothing passes but frames from the guest's own
hardware address with its own IP addresses, so it cannot fill the tables of neighbours either; nor
does what only routers and DHCP servers say.  At the machine's end of a pod's link nothing passes
whose source is not led back over that link.
"""

from collections.abc import Sequence

from corral.node.network.netlink import Address

TABLE = "corral_guard"
LINK_PREFIX = "pod"
"""What the names of the machine's ends of the pods' links begin with."""
_NEIGHBOUR_PACKETS = 50
"""Solicitations and advertisements of one guest in a second: a guest needs a handful."""
_DHCP_CLIENT, _DHCP6_CLIENT = 68, 546
"""The ports to which servers alone send (RFC 2131, RFC 8415)."""
_LINK_PACKETS = 10
_LINK_BURST = 50
"""Packets of one guest from addresses of its link in a second, and at once: each address that is
answered takes a place in the table of neighbours, which all of the host's namespaces share."""


def machine_rules() -> str:
    """The guard of a machine's namespace: every pod speaks from its own addresses only (RFC 3704).

    The kernel's routes say whose an address is, so nothing is to be told when pods come and go.
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


def card_rules(tap: str, mac: str, addresses: Sequence[Address]) -> str:
    """The guard behind a guest's card.

    A guest without an address yet speaks from the unspecified one, and in IPv6 from one of the link
    that it makes up itself.
    """
    mine = {
        4: ", ".join(["0.0.0.0", *(str(one) for one in addresses if one.version == 4)]),  # noqa: S104 - no listener
        6: ", ".join(["::", "fe80::/10", *(str(one) for one in addresses if one.version == 6)]),
    }
    return f"""\
table bridge {TABLE} {{
  chain prerouting {{
    type filter hook prerouting priority filter; policy accept;
    iifname != "{tap}" accept
    ether saddr != {mac} drop
    arp saddr ether != {mac} drop
    arp saddr ip != {{ {mine[4]} }} drop
    ip saddr != {{ {mine[4]} }} drop
    ip6 saddr != {{ {mine[6]} }} drop
    icmpv6 type {{ nd-router-advert, nd-redirect }} drop
    icmp type redirect drop
    udp dport {{ {_DHCP_CLIENT}, {_DHCP6_CLIENT} }} drop
    ip6 saddr fe80::/10 limit rate over {_LINK_PACKETS}/second burst {_LINK_BURST} packets drop
    icmpv6 type {{ nd-router-solicit, nd-neighbor-solicit, nd-neighbor-advert }} \
limit rate over {_NEIGHBOUR_PACKETS}/second drop
  }}
}}
"""
