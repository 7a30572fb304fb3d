"""Attempts of a hostile pod to get around the rules of the machine namespace; prints results."""

import asyncio
import errno
import os
import socket
import struct
import subprocess
from contextlib import ExitStack, suppress
from ipaddress import IPv6Address, ip_address, ip_interface

from tests.e2e.network.site import PATIENCE, Pod, Site, play

from corral.node.network import netlink, nft
from corral.node.network.antispoof import nic_rules
from corral.node.network.host_link import addresses, alias, link_number
from corral.node.network.namespace_nft_rules import API_PORT, MAX_API_CONNECTIONS
from corral.node.network.namespaces import Namespace
from corral.node.network.pod_layout import BRIDGE, BRIDGE_MAC, TAP, nat_rules

SYN = 2
WAIT_SECONDS = 1.0
"""For what shall not come."""


def checksum(data: bytes) -> int:
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def knock(source: str, target: str, port: int, router: str) -> None:
    """Send the first packet of a connection as no kernel would: to an address that it refuses."""
    ends = IPv6Address(source).packed + IPv6Address(target).packed
    header = struct.pack("!HHIIBBHHH", 33333, port, 1000, 0, 5 << 4, SYN, 64000, 0, 0)
    sum_ = checksum(ends + struct.pack("!II", len(header), socket.IPPROTO_TCP) + header)
    packet = struct.pack("!IHBB", 6 << 28, len(header), socket.IPPROTO_TCP, 64) + ends
    packet += header[:16] + struct.pack("!H", sum_) + header[18:]
    with socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM) as raw:
        mac = bytes.fromhex(router.replace(":", ""))
        raw.sendto(packet, ("eth0", 0x86DD, 0, 0, mac))


async def is_knocked_at(listening: socket.socket) -> bool:
    """Return whether somebody connects before long."""
    listening.setblocking(False)
    with suppress(TimeoutError):
        async with asyncio.timeout(WAIT_SECONDS):
            connection, _ = await asyncio.get_running_loop().sock_accept(listening)
            connection.close()
            return True
    return False


async def outward(site: Site, pod: Pod) -> None:
    """Nothing of the host's loopback is reached, by whatever name; its own address is."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))
        own = probe.getsockname()[0]
    with (
        socket.create_server(("127.0.0.1", 0)) as private,
        socket.create_server(("::1", 0), family=socket.AF_INET6) as private6,
        socket.create_server((own, 0)) as public,
    ):

        async def goes_out() -> bool:
            made = await pod.namespace.call(socket.socket, socket.AF_INET, socket.SOCK_STREAM)
            with made, suppress(OSError, TimeoutError):
                made.setblocking(False)
                async with asyncio.timeout(WAIT_SECONDS):
                    loop = asyncio.get_running_loop()
                    await loop.sock_connect(made, (own, public.getsockname()[1]))
                    return True
            return False

        await site.until(goes_out)
        targets = [("::ffff:127.0.0.1", private), ("::127.0.0.1", private), ("::", private6)]
        for target, listening in targets:
            port = listening.getsockname()[1]
            await pod.namespace.call(knock, pod.addresses[-1], target, port, pod.router)
        saw = [await is_knocked_at(each) for each in (private, private6)]
        site.saw["loopback"] = saw


async def metadata(site: Site, pod: Pod) -> None:
    """Report how connections to the metadata addresses of clouds end."""

    async def ending(address: str) -> str:
        with await pod.namespace.call(socket.socket, socket.AF_INET) as made:
            made.setblocking(False)
            try:
                # A link that is new may lose the first packet.
                async with asyncio.timeout(PATIENCE):
                    await asyncio.get_running_loop().sock_connect(made, (address, 80))
            except TimeoutError:
                return "silence"
            except OSError as error:
                return errno.errorcode[error.errno or 0]
        return "answered"

    places = ("169.254.169.254", "168.63.129.16", "100.100.100.200", "192.0.0.192")
    site.saw["metadata"] = {each: await ending(each) for each in places}


async def probes(site: Site) -> None:
    """Report whether the node's own probes get at the host by its link."""
    name = alias(site.directory)
    with netlink.opened() as link:
        number = next(
            link_number(each.name) for each in link.links().values() if each.alias == name
        )
    address = str(addresses(number)[0][0].ip)
    with socket.create_server(("", 0)) as listening:
        try:
            (await site.network.connect(address, listening.getsockname()[1])).close()
            site.saw["probe"] = "answered"
        except OSError as error:
            site.saw["probe"] = errno.errorcode[error.errno or 0]


async def calls(site: Site, guest: Pod, other: Pod) -> None:
    """Report the connections that one client gets to the API, and whether another gets one then."""
    loop, gateway = asyncio.get_running_loop(), str(site.network.gateway)

    async def connects(pod: Pod, stack: ExitStack, seconds: float = PATIENCE) -> bool:
        made = stack.enter_context(await pod.namespace.call(socket.socket))
        made.setblocking(False)
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(seconds):
                await loop.sock_connect(made, (gateway, API_PORT))
                return True
        return False

    with ExitStack() as stack:
        listening = await site.network.bound(site.network.gateway, API_PORT)
        stack.enter_context(listening).listen(2 * MAX_API_CONNECTIONS)
        made = [await connects(guest, stack) for _ in range(MAX_API_CONNECTIONS)]
        made += await asyncio.gather(*(connects(guest, stack, WAIT_SECONDS) for _ in range(8)))
        site.saw["connections"] = sum(made)
        site.saw["another's call"] = await connects(other, stack)


async def by_the_host(site: Site, pod: Pod) -> None:
    """Report whether datagrams of the host reach a pod, from its own address and from another."""
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe,
        await pod.namespace.call(socket.socket, socket.AF_INET, socket.SOCK_DGRAM) as listening,
    ):
        listening.bind(("", 53))
        listening.setblocking(False)
        probe.connect(("192.0.2.1", 9))

        async def arrives(source: str) -> bool:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as made, suppress(TimeoutError):
                made.bind((source, 0))
                made.sendto(b"hello", (pod.address, 53))
                async with asyncio.timeout(WAIT_SECONDS):
                    return bool(await asyncio.get_running_loop().sock_recv(listening, 9))
            return False

        await site.until(lambda: arrives(""))
        site.saw["by the host"] = [True, await arrives(probe.getsockname()[0])]


async def neighbours(site: Site) -> tuple[int, float]:
    """Return the number of cached neighbours after a guest has called hundreds.

    And within how many seconds it has called them.
    """
    guest_mac, card = "02:00:00:00:00:02", ip_interface("10.0.2.2/24")
    rules = nic_rules(TAP, guest_mac, [card.ip, ip_address("fd10:0:2::2")])
    rules += nat_rules([(site.network.pod_cidrs[0][9], card.ip)], [])
    with Namespace.create() as pod, Namespace.create() as guest:

        def furnish() -> None:
            for name in ("ipv4/ip_forward", "ipv6/conf/all/forwarding"):
                netlink.set_sysctl(name, 1)
            netlink.set_sysctl("ipv6/conf/default/accept_dad", 0)
            with netlink.opened() as link:
                end = {"peer": "eth0", "peer_namespace": guest.descriptor, "peer_mac": guest_mac}
                link.add_veth(TAP, **end)
                link.add_bridge(BRIDGE, mac=BRIDGE_MAC)
                link.change(TAP, master=BRIDGE)
                link.add_address(BRIDGE, ip_interface("10.0.2.1/24"))
            nft.apply(rules)

        def call() -> None:
            with netlink.opened() as link:
                link.change("eth0")
                link.add_address("eth0", card)
                for number in range(3, 250):
                    link.add_neighbour("eth0", card.network[number], BRIDGE_MAC)
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as made:
                for number in range(3, 250):
                    made.sendto(b"hello", (str(card.network[number]), 9))
            router = "fe80::ff:fe00:0"  # by the hardware address of the bridge
            echo = struct.pack("!BBHHH", 128, 0, 0, 1, 1)
            mac = bytes.fromhex(BRIDGE_MAC.replace(":", ""))
            with socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM) as raw:
                for number in range(250):
                    ends = IPv6Address(f"fe80::1:{number:x}").packed + IPv6Address(router).packed
                    sum_ = checksum(ends + struct.pack("!II", len(echo), 58) + echo)
                    packet = struct.pack("!IHBB", 6 << 28, len(echo), 58, 64) + ends
                    packet += echo[:2] + struct.pack("!H", sum_) + echo[4:]
                    raw.sendto(packet, ("eth0", 0x86DD, 0, 0, mac))

        def count() -> int:
            command = ["ip", "neigh", "show", "nud", "all", "dev", BRIDGE]
            done = subprocess.run(
                command, capture_output=True, text=True, check=True, timeout=PATIENCE
            )
            return done.stdout.count("INCOMPLETE") + done.stdout.count("FAILED")

        await pod.call(furnish)
        begun = asyncio.get_running_loop().time()
        await guest.call(call)
        took = asyncio.get_running_loop().time() - begun
        return await pod.call(count), took


GUEST_MAC = bytes.fromhex("020000000002")


def frame(body: bytes, kind: int = 0x800, source: bytes = GUEST_MAC) -> bytes:
    return bytes.fromhex(BRIDGE_MAC.replace(":", "")) + source + struct.pack("!H", kind) + body


def ipv4(source: str, target: str, protocol: int, body: bytes) -> bytes:
    ends = ip_address(source).packed + ip_address(target).packed
    header = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(body), 1, 0, 64, protocol, 0)
    header = header[:10] + struct.pack("!H", checksum(header + ends)) + ends
    return header + body


def ipv6(source: str, target: str, protocol: int, body: bytes) -> bytes:
    ends = IPv6Address(source).packed + IPv6Address(target).packed
    sum_ = checksum(ends + struct.pack("!II", len(body), protocol) + body)
    at = 2 if protocol == socket.IPPROTO_ICMPV6 else 6
    body = body[:at] + struct.pack("!H", sum_) + body[at + 2 :]
    return struct.pack("!IHBB", 6 << 28, len(body), protocol, 255) + ends + body


def udp(source: int, target: int) -> bytes:
    return struct.pack("!HHHH", source, target, 16, 0) + b"01234567"


def impostures() -> dict[str, bytes]:
    """Frames that a guest sends, by what it would have others believe."""
    mine, mine6, link, all_ = "10.0.2.2", "fd10:0:2::2", "fe80::2", "ff02::1"
    arp = struct.pack("!HHBBH", 1, 0x800, 6, 4, 2)
    router = struct.pack("!BBHBBHII", 134, 0, 0, 64, 0, 1800, 0, 0)
    redirect = struct.pack("!BBHI", 137, 0, 0, 0) + IPv6Address(link).packed * 2
    return {
        "itself": frame(ipv4(mine, "10.0.2.1", 17, udp(9, 9))),
        "itself, IPv6": frame(ipv6(mine6, all_, 17, udp(9, 9)), 0x86DD),
        "another card": frame(ipv4(mine, "10.0.2.1", 17, udp(9, 10)), source=b"\x02\0\0\0\0\x63"),
        "another guest": frame(ipv4("10.0.2.9", "10.0.2.1", 17, udp(9, 9))),
        "another guest, IPv6": frame(ipv6("fd10:0:2::9", all_, 17, udp(9, 9)), 0x86DD),
        "the gateway": frame(arp + GUEST_MAC + bytes((10, 0, 2, 1)) + bytes(10), 0x806),
        "a router": frame(ipv6(link, all_, 58, router), 0x86DD),
        "a router that redirects": frame(ipv6(link, mine6, 58, redirect), 0x86DD),
        "a router that redirects, IPv4": frame(ipv4(mine, "10.0.2.1", 1, b"\5\1" + bytes(26))),
        "a DHCP server": frame(ipv4(mine, "255.255.255.255", 17, udp(67, 68))),
        "a DHCPv6 server": frame(ipv6(link, all_, 17, udp(547, 546)), 0x86DD),
    }


async def impostors() -> list[str]:
    """Return the frames that get past a guest's network card."""
    rules = nic_rules(TAP, GUEST_MAC.hex(":"), [ip_address("10.0.2.2"), ip_address("fd10:0:2::2")])
    with Namespace.create() as pod, Namespace.create() as guest:

        def furnish() -> socket.socket:
            with netlink.opened() as link:
                end = {"peer": "eth0", "peer_namespace": guest.descriptor}
                link.add_veth(TAP, peer_mac=GUEST_MAC.hex(":"), **end)
                link.add_bridge(BRIDGE, mac=BRIDGE_MAC)
                link.change(TAP, master=BRIDGE)
            nft.apply(rules)
            listening = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
            listening.bind((BRIDGE, 0))
            return listening

        def send() -> None:
            with netlink.opened() as link:
                link.change("eth0")
            with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as raw:
                raw.bind(("eth0", 0))
                for one in [*impostures().values(), frame(LAST)]:
                    raw.send(one)

        seen: set[bytes] = set()
        with await pod.call(furnish) as listening:
            listening.setblocking(False)
            async with asyncio.timeout(PATIENCE):
                while frame(LAST) not in seen:  # a link that is new may lose what is sent first
                    await guest.call(send)
                    with suppress(TimeoutError):
                        async with asyncio.timeout(WAIT_SECONDS):
                            while frame(LAST) not in seen:
                                seen.add(await asyncio.get_running_loop().sock_recv(listening, 99))
        return [name for name, one in impostures().items() if one in seen]


LAST = ipv4("10.0.2.2", "10.0.2.1", 17, udp(1, 1))


async def session(site: Site) -> None:
    site.tasks.start(site.network.run(), name="network")
    pod, other = await site.link("guest", 5), await site.link("other", 6)
    await calls(site, pod, other)
    site.saw["neighbours"] = await neighbours(site)
    site.saw["impostors"] = await impostors()
    if os.geteuid() == 0:
        await by_the_host(site, pod)
        await probes(site)
    await metadata(site, pod)
    if 6 in site.network.families:
        await outward(site, pod)


if __name__ == "__main__":
    play(session, 216)
