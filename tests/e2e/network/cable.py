"""A cable from a guest's card into a namespace, and a responder at its other end."""

import asyncio
import json
import os
import re
import socket
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Interface, IPv6Address, IPv6Interface
from pathlib import Path

from corral.node.network.dhcp import Lease, Lease6, Link, Responder
from corral.node.network.namespaces import Namespace

ROOT = Path(__file__).parent.parent.parent.parent
RECORDED = {
    name: bytes.fromhex(text)
    for name, text in json.loads(
        (ROOT / "tests/unit/node/network/dhcp/recorded.json").read_text()
    ).items()
}
GUEST, ROUTER = "02:00:00:00:00:09", "02:00:00:00:00:01"
LEASE = Lease(
    address=IPv4Interface("10.0.2.2/24"),
    server=IPv4Address("10.0.2.1"),
    gateway=IPv4Address("10.0.2.1"),
    dns=(IPv4Address("10.0.2.1"),),
    search=("default.svc.cluster.local", "svc.cluster.local"),
    mtu=1450,
    hostname="web-1",
)
LEASE6 = Lease6(
    address=IPv6Interface("fd10:0:2::2/120"),
    dns=(IPv6Address("fd10:0:2::1"),),
    search=("default.svc.cluster.local",),
    mtu=1450,
)
LINK = Link(device="bridge", guest=GUEST, router=ROUTER, lease=LEASE, lease6=LEASE6)
SERVERS = ("255.255.255.255", 67)


def may_make_links() -> bool:
    status = Path("/proc/self/status").read_text()
    net_admin = 12
    return bool(int(re.search(r"CapEff:\s*(\w+)", status)[1], 16) >> net_admin & 1)


def ip(*lines: str) -> None:
    """Change links and addresses of the calling thread's namespace; lines are iproute2's."""
    subprocess.run(
        ["ip", "-batch", "-"], input="\n".join(lines), text=True, check=True, timeout=120
    )


def skip_duplicate_detection(device: str) -> None:
    """A link-local address that is first looked for on the link is there only a second later."""
    Path(f"/proc/sys/net/ipv6/conf/{device}/accept_dad").write_text("0")


def plug(namespace: Namespace, port: str, *addresses: str) -> None:
    """A bridge with `port` in it, as a pod has one."""
    namespace.run(ip, f"link add bridge address {ROUTER} type bridge")
    namespace.run(skip_duplicate_detection, "bridge")
    namespace.run(
        ip,
        f"link set {port} master bridge up",
        "link set bridge up",
        *(f"address add {address} dev bridge" for address in addresses),
    )


@dataclass
class Cable:
    """Two namespaces and a cable between them: from the guest's card to the pod's bridge."""

    pod: Namespace
    guest: Namespace

    @asynccontextmanager
    async def client(self, port: int) -> AsyncIterator[socket.socket]:
        client = self.guest.run(heard_by_guest, port)
        with client:
            yield client

    async def answered(
        self, link: Link, request: bytes, target: tuple[str, int] = SERVERS, port: int = 68
    ) -> bytes:
        """Return the responses to a guest's `request`, from a responder on `link`."""
        async with responding(self.pod, link), self.client(port) as client:
            reply, _ = await heard(client, request, target=target)
            return reply


async def heard(
    client: socket.socket, *requests: bytes, target: tuple[str, int] = SERVERS
) -> tuple[bytes, tuple[str, int]]:
    """The first answer to these requests, and who sent it.

    They are sent again until it comes, as guests do: a link that is new may lose the first packet,
    or the answer to it.
    """
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(120):
        while True:
            for request in requests:
                await loop.sock_sendto(client, request, target)
            with suppress(TimeoutError):
                async with asyncio.timeout(1):
                    return await loop.sock_recvfrom(client, 2048)


def heard_by_guest(port: int) -> socket.socket:
    family, anywhere = (socket.AF_INET6, "::") if port == 546 else (socket.AF_INET, "")
    client = socket.socket(family, socket.SOCK_DGRAM)
    client.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
    client.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"card")
    client.setblocking(False)
    client.bind((anywhere, port))
    return client


@contextmanager
def cable(*addresses: str) -> Iterator[Cable]:
    with Namespace.create() as pod, Namespace.create() as guest:
        pod.run(
            ip,
            f"link add card address {GUEST} type veth peer name tap",
            f"link set card netns /proc/{os.getpid()}/fd/{guest.descriptor}",
        )
        plug(pod, "tap", *addresses)
        guest.run(skip_duplicate_detection, "card")
        guest.run(ip, "link set lo up", "link set card up")
        yield Cable(pod, guest)


@asynccontextmanager
async def responding(pod: Namespace, link: Link = LINK) -> AsyncIterator[Responder]:
    responder = Responder(link)
    try:
        await pod.call(responder.open)
        responder.start()
        yield responder
    finally:
        responder.close()
