"""Requests of real and of hostile DHCPv6 clients, and the answers; numbers are RFC 8415's."""

import struct
from dataclasses import replace
from ipaddress import IPv6Address

import pytest
from dnslib import DNSBuffer
from hypothesis import given, strategies as st
from tests.unit.node.network.dhcp.packets import LEASE6, RECORDED, ROUTER, SEARCH, damaged

from corral.node.network.dhcp import dhcp6

ADVERTISE, REPLY = 2, 7
SOLICIT, REQUEST, CONFIRM, RENEW, REBIND, DECLINE, INFORMATION = 1, 3, 4, 5, 6, 9, 11
CLIENT, SERVER, IA_NA, ADDRESS, STATUS, RAPID = 1, 2, 3, 5, 13, 14
REQUESTS = [name for name in RECORDED if "v6" in name]
DUID = b"\0\3\0\1" + ROUTER
OURS = LEASE6.address.ip.packed
FOREIGN = IPv6Address("2001:db8::1").packed


def options(data: bytes) -> dict[int, list[bytes]]:
    found: dict[int, list[bytes]] = {}
    while data:
        number, size = struct.unpack_from(">HH", data)
        assert len(data) >= 4 + size
        found.setdefault(number, []).append(data[4 : 4 + size])
        data = data[4 + size :]
    return found


def option(number: int, value: bytes = b"") -> bytes:
    return struct.pack(">HH", number, len(value)) + value


def wants(number: bytes, *addresses: bytes) -> bytes:
    inside = b"".join(option(ADDRESS, address + bytes(8)) for address in addresses)
    return option(IA_NA, number + bytes(8) + inside)


def ask(kind: int, *more: bytes, client: bytes = b"client") -> bytes:
    return bytes([kind]) + b"abc" + (option(CLIENT, client) if client else b"") + b"".join(more)


def answer(request: bytes, lease=LEASE6) -> tuple[int, dict[int, list[bytes]]]:
    reply = dhcp6.reply(request, lease, ROUTER)
    assert reply is not None
    assert reply[1:4] == request[1:4], "the transaction"
    return reply[0], options(reply[4:])


def addresses(reply_options: dict[int, list[bytes]]) -> list[tuple[bytes, dict[bytes, int]]]:
    """Of each association its number, and the addresses in it with their valid lifetimes."""
    found = []
    for association in reply_options.get(IA_NA, []):
        inside = options(association[12:])
        given_ = {value[:16]: int.from_bytes(value[20:24], "big") for value in inside.get(5, [])}
        found.append((association[:4], given_))
    return found


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("dhclient v6 SOLICIT", ADVERTISE),
        ("dhclient v6 REQUEST", REPLY),
        ("dhcpcd v6 SOLICIT rapid", REPLY),
        ("dhcpcd v6 RENEW", REPLY),
    ],
)
def test_real_clients_get_their_address(name, kind):
    said, reply_options = answer(RECORDED[name])
    assert said == kind
    assert reply_options[SERVER] == [DUID]
    assert reply_options[CLIENT] == options(RECORDED[name][4:])[CLIENT]
    assert addresses(reply_options) == [(b"\0\0\0\x09", {OURS: 0xFFFFFFFF})]
    assert reply_options[23] == [LEASE6.dns[0].packed]
    buffer = DNSBuffer(reply_options[24][0])
    assert [str(buffer.decode_name()) for _ in SEARCH] == [f"{name}." for name in SEARCH]
    assert (RAPID in reply_options) == ("rapid" in name)


def test_real_clients_can_confirm_their_address():
    said, reply_options = answer(RECORDED["dhclient v6 CONFIRM"])
    assert (said, reply_options[STATUS]) == (REPLY, [b"\0\0"])


@pytest.mark.parametrize("name", ["dhclient v6 RELEASE", "dhcpcd v6 RELEASE"])
def test_a_release_is_acknowledged(name):
    said, reply_options = answer(RECORDED[name])
    assert (said, reply_options[STATUS]) == (REPLY, [b"\0\0"])
    assert IA_NA not in reply_options


def test_an_information_request_gets_no_address():
    said, reply_options = answer(RECORDED["dhclient v6 INFORMATION-REQUEST"])
    assert said == REPLY
    assert set(reply_options) == {CLIENT, SERVER, 23, 24}
    assert set(answer(ask(INFORMATION, client=b""))[1]) == {SERVER, 23, 24}
    assert set(answer(ask(INFORMATION), replace(LEASE6, dns=(), search=()))[1]) == {CLIENT, SERVER}


def test_a_foreign_address_gets_zero_lifetimes():
    for request in (
        ask(REBIND, wants(b"one1", FOREIGN)),
        ask(RENEW, option(SERVER, DUID), wants(b"one1", FOREIGN)),
    ):
        assert addresses(answer(request)[1]) == [(b"one1", {OURS: 0xFFFFFFFF, FOREIGN: 0})]


def test_there_is_one_address_for_all_associations():
    said, reply_options = answer(ask(SOLICIT, wants(b"one1"), wants(b"two2", OURS)))
    assert said == ADVERTISE
    assert addresses(reply_options) == [(b"one1", {OURS: 0xFFFFFFFF}), (b"two2", {OURS: 0})]
    assert options(reply_options[IA_NA][1][12:])[STATUS] == [b"\0\2"]


def test_a_foreign_address_is_not_on_link():
    assert answer(ask(CONFIRM, wants(b"one1", FOREIGN)))[1][STATUS] == [b"\0\4"]
    assert dhcp6.reply(ask(CONFIRM, wants(b"one1")), LEASE6, ROUTER) is None


@pytest.mark.parametrize(
    "request_",
    [
        ask(SOLICIT, wants(b"one1"), client=b""),
        ask(SOLICIT, wants(b"one1"), client=b"x" * 131),
        ask(SOLICIT, wants(b"one1"), option(SERVER, DUID)),
        ask(REQUEST, wants(b"one1")),
        ask(REQUEST, wants(b"one1"), option(SERVER, b"another")),
        ask(DECLINE, wants(b"one1", OURS), option(SERVER, b"another")),
        ask(INFORMATION, wants(b"one1")),
        ask(INFORMATION, option(SERVER, b"another")),
        ask(12, wants(b"one1")),
        ask(ADVERTISE, option(SERVER, DUID)),
        b"\1ab",
    ],
    ids=[
        "nameless", "long name", "solicit names a server", "no server", "other server",
        "declined elsewhere", "information for an address", "information of another",
        "relayed", "another server's", "cut off",
    ],
)  # fmt: skip
def test_messages_for_another_server_get_no_response(request_):
    assert dhcp6.reply(request_, LEASE6, ROUTER) is None


@given(st.binary(max_size=400))
def test_any_bytes_are_parsed(data):
    dhcp6.reply(data, LEASE6, ROUTER)


@given(damaged(*REQUESTS))
def test_damaged_requests_get_a_valid_response_or_none(request_):
    if reply := dhcp6.reply(request_, LEASE6, ROUTER):
        assert reply[0] in {ADVERTISE, REPLY}
        assert options(reply[4:])[SERVER] == [DUID]
        assert len(reply) < 1400


def test_many_identity_associations_get_a_limited_response():
    crowd = b"".join(wants(bytes([0, 0, 0, n]), *[FOREIGN] * 20) for n in range(3))
    reply = dhcp6.reply(ask(SOLICIT, crowd * 10), LEASE6, ROUTER)
    assert reply is not None
    assert len(reply) < 4000
