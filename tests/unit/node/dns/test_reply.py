"""Replies from outside: passed on as they came, and remembered within bounds."""

from dataclasses import replace
from textwrap import dedent

import dnslib
import pytest
from hypothesis import given, strategies as st

from corral.node.dns.cache import Cache, cache_key
from corral.node.dns.codec import decode_query, encode_query, make_query
from corral.node.dns.records import Type, parse_name
from corral.node.dns.reply import MAX_CACHE_SECONDS, decode_reply

QUERY = replace(make_query(parse_name("www.example.com"), Type.A), extended=True, size=1232)
SOA = "example.com. 900 IN SOA ns.example.com. hm.example.com. 1 2 3 4 60"


def reply_to(query=QUERY, number=7, *, answers="", authority="", **header):
    made = dnslib.DNSRecord.parse(encode_query(query, number)).reply(aa=0)
    for text, add in ((answers, made.add_answer), (authority, made.add_auth)):
        if text:
            add(*dnslib.RR.fromZone(dedent(text).strip()))
    made.add_ar(dnslib.EDNS0(udp_len=4096))
    for name, value in header.items():
        setattr(made.header, name, value)
    return bytes(made.pack())


def test_all_types_of_records_are_forwarded_unchanged():
    zone = """
        www.example.com. 60 IN CNAME web.example.com.
        web.example.com. 300 IN A 192.0.2.1
        web.example.com. 300 IN AAAA 2001:db8::1
        web.example.com. 300 IN MX 10 mail.example.com.
        web.example.com. 300 IN TXT "some words"
        web.example.com. 300 IN SRV 1 2 3 srv.example.com.
        web.example.com. 300 IN CAA 0 issue "example.net"
        web.example.com. 300 IN HTTPS 1 . alpn=h2
    """
    packet = reply_to(answers=zone)
    reply = decode_reply(packet, QUERY, 7)
    passed = dnslib.DNSRecord.parse(reply.packet_for(replace(QUERY, id_=99), 0, 1232))
    assert passed.rr == dnslib.DNSRecord.parse(packet).rr
    assert [one.ttl for one in passed.rr] == [60, *[300] * 7]
    assert (passed.header.id, passed.header.ra, passed.header.aa) == (99, 1, 0)
    assert [one.edns_len for one in passed.ar] == [1232]
    assert reply.cache_seconds == 60


def test_clients_without_edns_get_none():
    reply = decode_reply(reply_to(answers="www.example.com. 9 IN A 192.0.2.1"), QUERY, 7)
    passed = dnslib.DNSRecord.parse(reply.packet_for(replace(QUERY, extended=False), 0, 512))
    assert (len(passed.rr), passed.ar) == (1, [])


def test_ttls_decrease():
    reply = decode_reply(reply_to(answers="www.example.com. 60 IN A 192.0.2.1"), QUERY, 7)
    for age, left in ((0, 60), (25, 35), (100, 0)):
        assert dnslib.DNSRecord.parse(reply.packet_for(QUERY, age, 1232)).rr[0].ttl == left


def test_the_question_section_is_that_of_the_query():
    reply = decode_reply(reply_to(answers="www.example.com. 60 IN A 192.0.2.1"), QUERY, 7)
    spelled = dnslib.DNSRecord.question("WWW.Example.com")
    passed = reply.packet_for(decode_query(bytes(spelled.pack())), 0, 512)
    assert str(dnslib.DNSRecord.parse(passed).q.qname) == "WWW.Example.com."


def test_records_that_do_not_fit_are_truncated():
    zone = "\n".join(f"www.example.com. 60 IN A 192.0.2.{n}" for n in range(100))
    reply = decode_reply(reply_to(answers=zone), QUERY, 7)
    passed = dnslib.DNSRecord.parse(reply.packet_for(QUERY, 0, 512))
    assert (passed.header.tc, passed.rr, len(passed.ar)) == (1, [], 1)


@pytest.mark.parametrize(
    ("packet", "seconds"),
    [
        pytest.param(reply_to(answers="a. 9999 IN A 192.0.2.1"), MAX_CACHE_SECONDS, id="long"),
        pytest.param(reply_to(answers="a. 0 IN A 192.0.2.1"), 0, id="at once"),
        pytest.param(reply_to(authority=SOA, rcode=3), 60, id="no such name"),
        pytest.param(reply_to(authority=SOA), 60, id="no such type"),
        pytest.param(reply_to(rcode=3), 0, id="nobody says how long"),
        pytest.param(reply_to(rcode=2), 0, id="failed"),
        pytest.param(reply_to(answers="a. 60 IN A 192.0.2.1", tc=1), 0, id="a part"),
    ],
)
def test_replies_are_cached_for_their_ttl(packet, seconds):
    assert decode_reply(packet, QUERY, 7).cache_seconds == seconds


def test_replies_to_other_queries_are_ignored():
    other = make_query(parse_name("www.example.org"), Type.A)
    for packet in (
        reply_to(number=8),
        reply_to(other),
        encode_query(QUERY, 7),
        b"",
        b"\0\7\x81\x80",
    ):
        with pytest.raises(ValueError, match=r"not a reply|another question|truncated"):
            decode_reply(packet, QUERY, 7)


@given(st.binary(max_size=200), st.integers(0, 3), st.integers(0, 3), st.integers(0, 3))
def test_any_reply_is_parsed_or_rejected(rest, answers, authority, additional):
    counts = b"".join(n.to_bytes(2, "big") for n in (1, answers, authority, additional))
    packet = b"\0\7\x81\x80" + counts + QUERY.question + rest
    try:
        reply = decode_reply(packet, QUERY, 7)
    except ValueError:
        return
    assert len(reply.packet_for(QUERY, 5, 1232)) <= len(packet) + 11


def test_the_cache_evicts_expired_and_least_recently_used_replies():
    cache = Cache(max_replies=2)
    reply = decode_reply(reply_to(answers="www.example.com. 60 IN A 192.0.2.1"), QUERY, 7)
    one, two, three = (cache_key(make_query((label,), Type.A)) for label in "abc")
    cache.put(one, reply, 100.0)
    cache.put(two, reply, 100.0)
    assert cache.get(one, 130.5) == (reply, 30)
    cache.put(three, reply, 130.0)
    assert cache.get(two, 131.0) is None
    assert cache.get(one, 160.0) is None
    assert len(cache) == 1


def test_uncacheable_replies_are_not_cached():
    cache = Cache()
    for header in ({"rcode": 2}, {"tc": 1}):
        cache.put(cache_key(QUERY), decode_reply(reply_to(**header), QUERY, 7), 0.0)
    huge = "\n".join(f"www.example.com. 60 IN A 10.0.{n // 256}.{n % 256}" for n in range(400))
    cache.put(cache_key(QUERY), decode_reply(reply_to(answers=huge), QUERY, 7), 0.0)
    assert len(cache) == 0


def test_cache_keys_are_case_insensitive():
    assert cache_key(make_query(("WWW", "Example"), 1)) == cache_key(
        make_query(("www", "example"), 1)
    )
    assert cache_key(make_query(("a",), 1)) != cache_key(make_query(("a",), 28))
