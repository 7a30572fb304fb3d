"""Packets: what is read of a query, what fits into an answer, and that nothing hostile gets by."""

import struct

import dnslib
import pytest
from hypothesis import given, strategies as st

from corral.node.dns.codec import (
    MAX_QUERY_BYTES,
    MAX_TCP_BYTES,
    MalformedQuery,
    addresses,
    decode_query,
    encode_answer,
    make_query,
)
from corral.node.dns.records import Answer, Code, Record, Soa, Srv, Type, parse_name

ROOT = parse_name("cluster.local")


def asking(name="web.default.svc.cluster.local", kind="A", **edns):
    question = dnslib.DNSRecord.question(name, kind)
    if edns:
        question.add_ar(dnslib.EDNS0(**edns))
    return question


def parsed(packet):
    return dnslib.DNSRecord.parse(packet)


def members(count, name="web.default.svc.cluster.local"):
    return [Record(parse_name(name), Type.A, f"10.244.{n // 256}.{n % 256}") for n in range(count)]


def test_a_query_is_parsed():
    sent = asking("Web.default.svc.cluster.local", "AAAA")
    query = decode_query(bytes(sent.pack()))
    assert (query.id_, query.name) == (sent.header.id, parse_name("Web.default.svc.cluster.local"))
    assert (query.type, query.type_class, query.size) == (Type.AAAA, 1, 512)
    assert query.recursion_desired
    assert not query.extended


@pytest.mark.parametrize(("requested", "taken"), [(100, 512), (1000, 1000), (4096, 1232)])
def test_the_size_of_datagrams_is_that_of_edns_within_limits(requested, taken):
    query = decode_query(bytes(asking(udp_len=requested).pack()))
    assert (query.size, query.extended) == (taken, True)


def test_a_later_version_of_edns_is_badvers():
    with pytest.raises(MalformedQuery) as error:
        decode_query(bytes(asking(version=1, udp_len=1232).pack()))
    reply = parsed(error.value.reply)
    assert (reply.header.rcode, reply.ar[0].edns_rcode) == (0, 1)


def test_other_messages_get_no_response():
    for packet in (b"", b"\x12\x34", bytes(asking().reply().pack())):
        with pytest.raises(MalformedQuery) as error:
            decode_query(packet)
        assert error.value.reply == b""


def changed(at, *values):
    packet = asking("a.b", udp_len=1232).pack()
    struct.pack_into(f"!{len(values)}H", packet, at, *values)
    return bytes(packet)


@pytest.mark.parametrize(
    ("packet", "code"),
    [
        pytest.param(changed(2, 0x2800), Code.NOTIMP, id="an update"),
        pytest.param(changed(4, 0), Code.FORMERR, id="no question"),
        pytest.param(changed(4, 2), Code.FORMERR, id="two questions"),
        pytest.param(changed(6, 1), Code.FORMERR, id="an answer"),
        pytest.param(changed(8, 9), Code.FORMERR, id="an authority"),
        pytest.param(changed(10, 2), Code.FORMERR, id="two records more"),
        pytest.param(changed(12, 0xC00C), Code.FORMERR, id="a name that is itself"),
        pytest.param(changed(12, 0xC000), Code.FORMERR, id="a name in the header"),
        pytest.param(changed(12, 0x3FFF), Code.FORMERR, id="a label beyond the end"),
        pytest.param(changed(22, 0x00FF), Code.FORMERR, id="another record than EDNS0"),
        pytest.param(bytes(asking().pack())[:-1], Code.FORMERR, id="cut short"),
        pytest.param(
            bytes(asking().pack()) + bytes(MAX_QUERY_BYTES), Code.FORMERR, id="too much behind"
        ),
        pytest.param(
            changed(4, 1)[:12] + b"\x3f" * 64 * 5 + bytes(9), Code.FORMERR, id="too long a name"
        ),
    ],
)
def test_a_malformed_query_gets_a_header_with_formerr(packet, code):
    with pytest.raises(MalformedQuery) as error:
        decode_query(packet)
    assert len(error.value.reply) == 12
    assert parsed(error.value.reply).header.rcode == code
    assert error.value.reply[:2] == packet[:2]


def answered(packet):
    try:
        query = decode_query(packet)
    except MalformedQuery as error:
        return error.reply
    return encode_answer(query, Answer(), query.size)


@given(st.binary(max_size=1100))
def test_any_packet_is_parsed_or_rejected(packet):
    assert len(answered(packet)) <= max(23, len(packet) + 11)


@given(st.binary(max_size=600), st.sampled_from([(1, 0, 0, 0), (1, 0, 0, 1), (1, 1, 0, 1)]))
def test_any_packet_with_a_valid_header_is_parsed_or_rejected(rest, counts):
    packet = struct.pack("!6H", 1, 0x0100, *counts) + rest
    assert len(answered(packet)) <= len(packet) + 11


@given(st.binary(max_size=300))
def test_any_reply_is_parsed_or_rejected(rest):
    try:
        found = addresses(struct.pack("!6H", 1, 0x8180, 1, 3, 0, 0) + rest)
    except ValueError:
        return
    assert all(record.type in (Type.A, Type.AAAA, Type.CNAME) for record in found)


def test_loops_of_compression_pointers_are_rejected():
    maze = b"".join(struct.pack("!H", 0xC000 | max(12, 10 + 2 * n)) for n in range(3000))
    with pytest.raises(ValueError, match="reply"):
        addresses(struct.pack("!6H", 1, 0x8180, 1, 900, 0, 0) + maze)


def test_too_long_names_are_rejected():
    # ever longer names, each of a label and a pointer to the one before
    packet, at = bytearray(struct.pack("!6H", 1, 0x8180, 0, 9, 0, 0)), 0
    for id_ in range(9):
        start = len(packet)
        packet += b"\x3f" + b"a" * 63 + (struct.pack("!H", 0xC000 | at) if id_ else b"\0")
        packet += struct.pack("!HHIH4B", Type.A, 1, 60, 4, 192, 0, 2, id_)
        at = start
    found = addresses(bytes(packet))
    assert [one.data for one in found] == ["192.0.2.0", "192.0.2.1", "192.0.2.2"]
    query = make_query(parse_name("x"), Type.A)
    assert len(parsed(encode_answer(query, Answer(records=found), 1232)).rr) == 3


def test_every_type_of_record_is_encoded():
    name = parse_name("Web.default.svc.cluster.local")
    records = [
        Record(name, Type.A, "10.96.0.1"),
        Record(name, Type.AAAA, "fd00::5"),
        Record(name, Type.CNAME, parse_name("www.example.com")),
        Record(name, Type.PTR, parse_name("vm.web.default.svc.cluster.local")),
        Record(name, Type.NS, ("ns", "dns", *ROOT)),
        Record(name, Type.TXT, "1.1.0", 28800),
        Record(name, Type.SRV, Srv(80, ("vm1", *ROOT))),
        Record(name, Type.SOA, Soa(("ns", *ROOT), ("hostmaster", *ROOT), 7)),
    ]
    query = decode_query(bytes(asking("Web.default.svc.cluster.local", udp_len=1232).pack()))
    reply = parsed(encode_answer(query, Answer(records=records), 1232))
    assert [(str(one.rname), one.rtype, one.ttl) for one in reply.rr] == [
        ("Web.default.svc.cluster.local.", one.type, one.ttl_seconds) for one in records
    ]
    assert [str(one.rdata) for one in reply.rr] == [
        "10.96.0.1",
        "fd00::5",
        "www.example.com.",
        "vm.web.default.svc.cluster.local.",
        "ns.dns.cluster.local.",
        '"1.1.0"',
        "0 100 80 vm1.cluster.local.",
        "ns.cluster.local. hostmaster.cluster.local. 7 7200 1800 86400 5",
    ]
    assert (reply.header.aa, reply.header.ra, reply.header.rd, reply.header.tc) == (1, 1, 1, 0)
    assert reply.header.id == query.id_
    assert str(reply.q.qname) == "Web.default.svc.cluster.local."


@pytest.mark.parametrize(("size", "edns"), [(512, {}), (1232, {"udp_len": 4096})])
def test_records_that_do_not_fit_are_truncated(size, edns):
    query = decode_query(bytes(asking(**edns).pack()))
    answer = Answer(records=members(200), additional=members(3, "other"))
    packet = encode_answer(query, answer, query.size)
    reply = parsed(packet)
    assert size - 16 < len(packet) <= size
    assert reply.header.tc
    assert 0 < len(reply.rr) < 200
    assert bool(edns) == any(one.rtype == 41 for one in reply.ar)


def test_additional_records_that_do_not_fit_are_dropped_without_truncation():
    query = decode_query(bytes(asking().pack()))
    reply = parsed(
        encode_answer(query, Answer(records=members(2), additional=members(100, "o")), 512)
    )
    assert (len(reply.rr), reply.header.tc) == (2, 0)
    assert 0 < len(reply.ar) < 100


def test_names_beyond_the_range_of_pointers_are_not_compressed():
    query = make_query(parse_name("cluster.local"), Type.A)
    names = [f"a-name-of-its-own-{n}.cluster.local" for n in range(600)]
    records = [members(1, name)[0] for name in names for _ in range(2)]
    packet = encode_answer(query, Answer(records=records), MAX_TCP_BYTES)
    assert len(packet) > 0x4000
    reply = parsed(packet)
    assert [str(one.rname) for one in reply.rr] == [f"{name}." for name in names for _ in range(2)]


def test_no_pointer_refers_to_a_truncated_record():
    query = make_query(parse_name("cluster.local"), Type.A)
    records = [
        *members(29),
        Record(parse_name("x.example.com"), Type.CNAME, parse_name("y.example.com")),
    ]
    for size in range(480, 700, 3):
        answer = Answer(records=records, additional=members(9, "x.example.com"))
        reply = parsed(encode_answer(query, answer, size))
        assert {str(one.rname) for one in reply.ar} <= {"x.example.com."}
