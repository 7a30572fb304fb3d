"""What the tests of this directory share: requests of real clients, and links to answer on.

The requests were taken from the wire between udhcpc 1.35, dhclient 4.4, dhcpcd 9.4 (all of
Debian 12) or iPXE (QEMU's firmware) and a responder: the data of UDP packets, of the kernel's
solicitation all of ICMPv6.
"""

import json
from ipaddress import IPv4Address, IPv4Interface, IPv6Address, IPv6Interface
from pathlib import Path

from hypothesis import strategies as st

from corral.node.network.dhcp import Lease, Lease6

RECORDED = {
    name: bytes.fromhex(text)
    for name, text in json.loads((Path(__file__).parent / "recorded.json").read_text()).items()
}
GUEST = bytes.fromhex("020000000009")
ROUTER = bytes.fromhex("020000000001")
SEARCH = ("default.svc.cluster.local", "svc.cluster.local", "cluster.local")
LEASE = Lease(
    address=IPv4Interface("10.0.2.2/24"),
    server=IPv4Address("10.0.2.1"),
    gateway=IPv4Address("10.0.2.1"),
    dns=(IPv4Address("10.96.0.10"),),
    search=SEARCH,
    mtu=1450,
    hostname="vm-1",
)
LEASE6 = Lease6(
    address=IPv6Interface("fd10:0:2::2/120"),
    dns=(IPv6Address("fd00:10:96::a"),),
    search=SEARCH,
    mtu=1450,
)


@st.composite
def damaged(draw, *names: str) -> bytes:
    """A recorded request in which bytes were changed, cut off or put in."""
    packet = bytearray(RECORDED[draw(st.sampled_from(names))])
    for _ in range(draw(st.integers(1, 6))):
        at = draw(st.integers(0, len(packet)))
        cut = draw(st.sampled_from([0, 0, 1, 1, 1, 2, 40, 400]))
        packet[at : at + cut] = draw(st.binary(max_size=4))
    return bytes(packet)
