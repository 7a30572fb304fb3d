"""Requests of real and of hostile clients, and the answers; numbers are those of the RFCs."""

import struct
from dataclasses import replace
from ipaddress import IPv4Address, IPv4Interface, IPv4Network

import pytest
from dnslib import DNSBuffer
from hypothesis import given, strategies as st
from tests.unit.node.network.dhcp.packets import GUEST, LEASE, RECORDED, SEARCH, damaged

from corral.node.network.dhcp import Route, dhcp4, options4

OFFER, ACK, NAK = 2, 5, 6
DISCOVER, REQUEST, DECLINE, RELEASE, INFORM = 1, 3, 4, 7, 8
REQUESTS = [name for name in RECORDED if "v6" not in name and "kernel" not in name]
BASE = struct.Struct(">4BIHH4s4s4s4s6s10x64s128s4s")


def options(reply: bytes) -> list[tuple[int, bytes]]:
    """Read with other code than the product's, which would hide what both get wrong."""
    at, found = 240, []
    while reply[at] != 255:
        size = reply[at + 1]
        found.append((reply[at], reply[at + 2 : at + 2 + size]))
        at += 2 + size
    assert not any(reply[at + 1 :]), "only zeros behind the end"
    return found


def ask(kind: int, *more: tuple[int, bytes], client="0.0.0.0", relay="0.0.0.0", flags=0) -> bytes:
    head = BASE.pack(
        1, 1, 6, 0, 0xCAFE, 0, flags, IPv4Address(client).packed, bytes(4), bytes(4),
        IPv4Address(relay).packed, GUEST, b"", b"", b"\x63\x82\x53\x63",
    )  # fmt: skip
    others = b"".join(bytes([number, len(value)]) + value for number, value in more)
    return head + bytes([53, 1, kind]) + others + b"\xff"


def answer(request: bytes, lease=LEASE) -> bytes:
    reply = dhcp4.reply(request, lease, GUEST)
    assert reply is not None
    return reply


def address(text: str) -> bytes:
    return IPv4Address(text).packed


@pytest.mark.parametrize(
    ("name", "kind", "client"),
    [
        ("udhcpc DISCOVER", OFFER, "0.0.0.0"),
        ("udhcpc REQUEST selecting", ACK, "0.0.0.0"),
        ("udhcpc REQUEST renewing", ACK, "10.0.2.2"),
        ("dhclient DISCOVER", OFFER, "0.0.0.0"),
        ("dhclient REQUEST selecting", ACK, "0.0.0.0"),
        ("dhclient REQUEST rebooting", ACK, "0.0.0.0"),
        ("dhcpcd DISCOVER", OFFER, "0.0.0.0"),
        ("iPXE DISCOVER", OFFER, "0.0.0.0"),
        ("iPXE REQUEST selecting", ACK, "0.0.0.0"),
    ],
)
def test_real_clients_get_their_address(name, kind, client):
    request = RECORDED[name]
    reply = answer(request)
    op, *_, seconds, _flags, had, given_, _next, _relay, mac, _sname, _file, cookie = BASE.unpack(
        reply[:240]
    )
    assert (op, seconds, mac, cookie) == (2, 0, GUEST, b"\x63\x82\x53\x63")
    assert reply[4:8] == request[4:8], "the transaction"
    assert (str(IPv4Address(had)), str(IPv4Address(given_))) == (client, "10.0.2.2")
    reply_options = dict(options(reply))
    assert reply_options[53] == bytes([kind])
    assert reply_options[54] == reply_options[3] == address("10.0.2.1")
    assert reply_options[51] == struct.pack(">I", LEASE.seconds)
    assert reply_options[1] == address("255.255.255.0")
    assert reply_options[28] == address("10.0.2.255")
    assert reply_options[6] == address("10.96.0.10")
    assert reply_options[26] == struct.pack(">H", 1450)
    assert reply_options[12] == b"vm-1"
    assert reply_options[15] == SEARCH[0].encode()
    assert 121 not in reply_options


def test_a_release_gets_no_response():
    assert dhcp4.reply(RECORDED["udhcpc RELEASE"], LEASE, GUEST) is None
    assert dhcp4.reply(ask(DECLINE, (50, address("10.0.2.2"))), LEASE, GUEST) is None


@pytest.mark.parametrize("name", REQUESTS)
def test_only_the_guest_of_the_link_gets_responses(name):
    assert dhcp4.reply(RECORDED[name], LEASE, bytes.fromhex("02000000000a")) is None


def test_relayed_requests_get_no_response():
    assert dhcp4.reply(ask(DISCOVER, relay="10.9.9.9"), LEASE, GUEST) is None


def test_requests_for_another_server_get_no_response():
    request = ask(REQUEST, (50, address("10.0.2.2")), (54, address("10.0.2.99")))
    assert dhcp4.reply(request, LEASE, GUEST) is None


@pytest.mark.parametrize(
    "request_",
    [
        ask(REQUEST, (50, address("192.168.1.7"))),
        ask(REQUEST, client="192.168.1.7"),
        ask(REQUEST, (50, address("10.0.2.3")), (54, address("10.0.2.1"))),
    ],
    ids=["rebooting", "renewing", "selecting"],
)
def test_a_request_for_another_address_gets_a_broadcast_nak(request_):
    reply = answer(request_)
    assert options(reply) == [(53, bytes([NAK])), (54, address("10.0.2.1"))]
    assert reply[12:20] == bytes(8)
    assert dhcp4.destination(reply) == dhcp4.BROADCAST


def test_a_request_without_an_address_gets_no_response():
    assert dhcp4.reply(ask(REQUEST), LEASE, GUEST) is None


def test_an_inform_gets_the_options():
    reply = answer(ask(INFORM, client="10.0.2.2"))
    reply_options = dict(options(reply))
    assert reply_options[53] == bytes([ACK])
    assert 51 not in reply_options
    assert reply[16:20] == bytes(4), "no address is given"
    assert dhcp4.destination(reply) == IPv4Address("10.0.2.2")


@pytest.mark.parametrize("client", ["0.0.0.0", "10.0.2.77", "127.0.0.1", "224.0.0.1"])
def test_nothing_is_sent_to_foreign_addresses(client):
    assert dhcp4.reply(ask(INFORM, client=client), LEASE, GUEST) is None


def test_responses_are_broadcast_until_the_guest_has_its_address():
    assert dhcp4.destination(answer(ask(DISCOVER))) == dhcp4.BROADCAST
    assert dhcp4.destination(answer(RECORDED["udhcpc REQUEST renewing"])) == IPv4Address("10.0.2.2")


@pytest.mark.parametrize("flags", [0, 0x8000])
def test_flags_and_client_name_are_echoed(flags):
    reply = answer(ask(DISCOVER, (61, b"\x01abc"), flags=flags))
    assert struct.unpack_from(">H", reply, 10) == (flags,)
    assert dict(options(reply))[61] == b"\x01abc"


def test_the_search_list_is_compressed():
    value = dict(options(answer(ask(DISCOVER))))[119]
    buffer = DNSBuffer(value)
    found = []
    while buffer.remaining():
        found.append(str(buffer.decode_name()))
    assert found == [f"{name}." for name in SEARCH]
    assert len(value) == len(b"\7default\3svc\7cluster\5local\0") + 2 + 2


@pytest.mark.parametrize("parameters", [(), ((55, b"\x01\x03\x79"),)], ids=["all", "121"])
def test_classless_routes_have_the_default_route_and_the_gateways(parameters):
    lease = replace(
        LEASE,
        address=IPv4Interface("10.244.0.7/32"),
        gateway=IPv4Address("10.244.0.1"),
        routes=(
            Route(IPv4Network("192.168.4.0/22"), IPv4Address("10.244.0.2")),
            Route(IPv4Network("10.8.0.0/16")),
        ),
    )
    reply_options = dict(options(answer(ask(DISCOVER, *parameters), lease)))
    assert reply_options[121] == b"".join(
        (
            b"\x20" + address("10.244.0.1") + bytes(4),
            b"\x16\xc0\xa8\x04" + address("10.244.0.2"),
            b"\x10\x0a\x08" + bytes(4),
            b"\x00" + address("10.244.0.1"),
        )
    )
    assert reply_options[3] == address("10.244.0.1"), "for clients that know no option 121"
    assert 33 not in reply_options


def test_clients_without_classless_routes_get_host_routes():
    lease = replace(
        LEASE,
        routes=(
            Route(IPv4Network("192.168.4.0/22"), IPv4Address("10.0.2.9")),
            Route(IPv4Network("192.168.9.9/32"), IPv4Address("10.0.2.9")),
        ),
    )
    reply_options = dict(options(answer(ask(DISCOVER, (55, b"\x01\x03\x21")), lease)))
    assert reply_options[33] == address("192.168.9.9") + address("10.0.2.9")
    assert 121 not in reply_options


def test_a_network_without_gateway_has_no_default_route():
    reply_options = dict(options(answer(ask(DISCOVER), replace(LEASE, gateway=None))))
    assert 3 not in reply_options
    assert 121 not in reply_options


def test_boot_options_are_sent():
    lease = replace(
        LEASE,
        boot_file_name="pxe/boot.0",
        tftp_server_name="10.1.2.3",
        ntp_servers=(IPv4Address("10.1.1.1"), IPv4Address("10.1.1.2")),
        private_options=((240, b"value"), (254, b"")),
    )
    reply = answer(ask(DISCOVER), lease)
    reply_options = dict(options(reply))
    assert (reply_options[66], reply_options[67]) == (b"10.1.2.3", b"pxe/boot.0")
    assert reply_options[42] == address("10.1.1.1") + address("10.1.1.2")
    assert reply_options[240] == b"value"
    assert 254 not in reply_options, "an option of no bytes says nothing"
    assert reply[20:24] == address("10.1.2.3")
    assert reply[108:236].rstrip(b"\0") == b"pxe/boot.0"
    assert answer(ask(DISCOVER), replace(lease, tftp_server_name="a.b"))[20:24] == bytes(4)


@pytest.mark.parametrize(
    ("says", "max_bytes"), [(None, 548), (100, 548), (1500, 1472), (65535, 1472)]
)
def test_responses_fit_the_maximum_message_size(says, max_bytes):
    private = tuple((number, bytes(200)) for number in range(224, 255))
    more = () if says is None else ((57, struct.pack(">H", says)),)
    reply = answer(ask(DISCOVER, *more), replace(LEASE, private_options=private))
    assert max_bytes - 202 < len(reply) <= max_bytes
    assert dict(options(reply))[1] == address("255.255.255.0"), "what matters goes first"


def test_long_options_are_split():
    names = tuple(f"{letter * 50}.example" for letter in "abcdefgh")
    reply_options = options(answer(ask(DISCOVER, (57, b"\x05\xdc")), replace(LEASE, search=names)))
    parts = [value for number, value in reply_options if number == 119]
    assert [len(part) for part in parts] == [255, len(b"".join(parts)) - 255]
    assert DNSBuffer(b"".join(parts)).decode_name() == f"{names[0]}."


def test_split_and_overloaded_options_are_parsed():
    request = bytearray(ask(52, (52, b"\x03"), (55, b"\x01"), (55, b"\x21"))[:240])
    request += bytes([52, 1, 3, 55, 1, 1, 55, 1, 0x21, 255])
    request[108 : 108 + 4] = bytes([53, 1, DISCOVER, 255])
    request[44 : 44 + 7] = bytes([50, 4, 9, 9, 9, 9, 255])
    found = options4.parse(bytes(request[240:]), bytes(request[108:236]), bytes(request[44:108]))
    assert found == {52: b"\x03", 55: b"\x01\x21", 53: b"\x01", 50: b"\x09\x09\x09\x09"}
    assert dict(options(answer(bytes(request))))[53] == bytes([OFFER])


@pytest.mark.parametrize(
    "at_and_value",
    [(0, 2), (1, 6), (2, 7), (236, 0)],
    ids=["reply", "token ring", "size", "cookie"],
)
def test_requests_of_other_hardware_get_no_response(at_and_value):
    at, value = at_and_value
    request = bytearray(ask(DISCOVER))
    request[at] = value
    assert dhcp4.reply(bytes(request), LEASE, GUEST) is None


@given(st.binary(max_size=600))
def test_any_bytes_are_parsed_without_a_response(data):
    assert dhcp4.reply(data, LEASE, GUEST) is None


@given(damaged(*REQUESTS))
def test_damaged_requests_get_a_valid_response_or_none(request_):
    reply = dhcp4.reply(request_, LEASE, GUEST)
    if reply is not None:
        assert request_[28:34] == reply[28:34] == GUEST
        assert request_[4:8] == reply[4:8]
        assert 300 <= len(reply) <= 1472
        assert dict(options(reply))[53][0] in {OFFER, ACK, NAK}
        assert dhcp4.destination(reply) in {dhcp4.BROADCAST, LEASE.address.ip}


@given(st.lists(st.tuples(st.integers(1, 254), st.binary(min_size=1, max_size=600))))
def test_options_round_trip(values):
    joined: dict[int, bytes] = {}
    for number, value in values:
        joined[number] = joined.get(number, b"") + value
    assert options4.parse(options4.encode(values, max_bytes=1 << 20)) == joined
