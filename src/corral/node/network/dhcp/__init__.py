"""Gives guests their addresses: DHCP, DHCPv6 and router advertisements, one responder a card.

`dhcp4`, `dhcp6` and `advertisement` turn a request into an answer; they are pure, and what a guest
sends cannot make them raise. `responder` moves the packets.
"""

from corral.node.network.dhcp.lease import Lease, Lease6, Link, Route
from corral.node.network.dhcp.responder import Responder, advertise

__all__ = ["Lease", "Lease6", "Link", "Responder", "Route", "advertise"]
