"""A guest's requests, over a real link into a namespace, answered by a responder.

Needs the right to make network namespaces: root has it, and an ordinary user in a user namespace
of their own, into which the last test takes the others.
"""

import asyncio
import os
import subprocess
import sys
from dataclasses import replace
from ipaddress import IPv4Address, IPv4Interface

import pytest
from structlog.testing import capture_logs
from tests.e2e.network.cable import (
    GUEST,
    LEASE,
    LEASE6,
    LINK,
    RECORDED,
    ROOT,
    SERVERS,
    cable,
    heard,
    ip,
    may_make_links,
    responding,
)

from corral.node.network.dhcp import Responder
from corral.node.network.dhcp.responder import BURST, REPLIES_PER_SECOND
from corral.node.network.namespaces import Namespace

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

OFFER, ACK = 2, 5

needs_rights = pytest.mark.skipif(
    not may_make_links(), reason="run by test_an_ordinary_user_can_do_all_of_it"
)


def message(reply: bytes) -> int:
    """DHCP's option 53, which the responder writes first."""
    assert reply[240:242] == b"\x35\1"
    return reply[242]


@needs_rights
async def test_a_guest_behind_a_router_gets_its_address():
    with cable("10.0.2.1/24") as laid:
        offer = await laid.answered(LINK, RECORDED["udhcpc DISCOVER"])
        assert message(offer) == OFFER
        assert IPv4Address(offer[16:20]) == IPv4Address("10.0.2.2")
        laid.guest.run(ip, "address add 10.0.2.2/24 dev card")
        renewed = await laid.answered(
            LINK, RECORDED["udhcpc REQUEST renewing"], target=("10.0.2.1", 67)
        )
        assert message(renewed) == ACK


@needs_rights
async def test_a_bridge_without_an_address_answers_with_the_routers():
    router = IPv4Address("10.244.0.1")
    lease = replace(LEASE, address=IPv4Interface("10.244.0.7/16"), server=router, gateway=router)
    with cable() as laid:
        async with responding(laid.pod, replace(LINK, lease=lease)), laid.client(68) as client:
            offer, (source, port) = await heard(client, RECORDED["dhclient DISCOVER"])
    assert message(offer) == OFFER
    assert (source, port) == ("10.244.0.1", 67)
    assert IPv4Address(offer[16:20]) == lease.address.ip


@needs_rights
async def test_a_guest_gets_its_ipv6_address():
    servers = ("ff02::1:2", 547)
    with cable() as laid:
        offer = await laid.answered(LINK, RECORDED["dhclient v6 SOLICIT"], servers, 546)
    assert offer[0] == 2
    assert LEASE6.address.ip.packed in offer


@needs_rights
async def test_the_guests_kernel_learns_its_router():
    """It asks when its card comes up, and gets advertisements unasked when the responder starts."""
    with cable() as laid:
        async with responding(laid.pod):
            laid.guest.run(ip, "link set card down", "link set card up")
            async with asyncio.timeout(120):
                while "default via fe80::" not in (routes := laid.guest.run(routes6)):
                    await asyncio.sleep(0.05)
    assert "fd10:0:2::/120 dev card" in routes


def routes6() -> str:
    command = ["ip", "-6", "route"]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout


@needs_rights
async def test_other_mac_addresses_and_invalid_packets_get_no_response():
    stranger = RECORDED["udhcpc DISCOVER"].replace(bytes.fromhex("020000000009"), b"strang")
    with cable("10.0.2.1/24") as laid:
        async with responding(laid.pod), laid.client(68) as client:
            noise = (b"", b"x", stranger, bytes(1500))
            answer, _ = await heard(client, *noise, RECORDED["dhcpcd DISCOVER"])
            assert answer[4:8] == RECORDED["dhcpcd DISCOVER"][4:8], (
                "the first answer is to the last"
            )


@needs_rights
async def test_a_flooding_guest_is_rate_limited_and_logged_once():
    loop = asyncio.get_running_loop()
    seconds, answers = 2.0, 0
    with cable("10.0.2.1/24") as laid, capture_logs() as logs:
        async with responding(laid.pod), laid.client(68) as client:
            begun = loop.time()
            while loop.time() - begun < seconds:
                await loop.sock_sendto(client, RECORDED["udhcpc DISCOVER"], SERVERS)
                try:
                    while client.recv(2048):
                        answers += 1
                except BlockingIOError:
                    await asyncio.sleep(0)
            took_seconds = loop.time() - begun
    assert BURST <= answers <= BURST + REPLIES_PER_SECOND * took_seconds
    assert [log["guest"] for log in logs] == [GUEST]


@needs_rights
async def test_a_missing_device_is_an_error_and_leaks_nothing():
    with Namespace.create() as empty:
        responder = Responder(LINK)
        with pytest.raises(OSError, match="No such device"):
            await empty.call(responder.open)
        responder.close()


@needs_rights
async def test_a_removed_device_is_tolerated():
    with cable("10.0.2.1/24") as laid:
        async with responding(laid.pod) as responder:
            laid.pod.run(ip, "link delete bridge")
            await asyncio.sleep(0.05)
            responder.advertise()


def test_dhcp_works_without_root():
    """In a user namespace with all rights, which is where the manager of such a user is."""
    command = [
        "unshare", "--user", f"--map-user={os.geteuid() or 1000}",
        f"--map-group={os.getegid() or 1000}", "--keep-caps",
        sys.executable, "-m", "pytest", "-q", "-m", "e2e", "-p", "no:cacheprovider",
        "-k", "not without_root", __file__,
    ]  # fmt: skip
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=500, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "8 passed" in done.stdout, done.stdout
    assert "skipped" not in done.stdout
