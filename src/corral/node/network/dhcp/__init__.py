"""DHCP, DHCPv6 and router advertisements for guests: one responder for each network interface.

``dhcp4``, ``dhcp6`` and ``advertisement`` turn a request into a reply.  They do no I/O, and no
input of a guest makes them raise. ``responder`` sends and receives the packets.
"""

from corral.node.network.dhcp.lease import Lease, Lease6, Link, Route
from corral.node.network.dhcp.responder import Responder, advertise

__all__ = ["Lease", "Lease6", "Link", "Responder", "Route", "advertise"]
