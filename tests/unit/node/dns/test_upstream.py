"""Asking outside: which servers, in which order, and which replies are believed."""

import asyncio
import os
from contextlib import asynccontextmanager

import dnslib
import pytest

from corral.node.dns import upstream as module
from corral.node.dns.codec import make_query
from corral.node.dns.records import Type, parse_name
from corral.node.dns.upstream import Upstream

QUERY = make_query(parse_name("www.example"), Type.A)


class Server(asyncio.DatagramProtocol):
    """Sends what ``replies`` makes of a query."""

    def __init__(self, replies):
        self.replies = replies
        self.senders = []

    def connection_made(self, transport):
        self.transport = transport

    def datagram_received(self, data, addr):
        self.senders.append(addr)
        for reply in self.replies(dnslib.DNSRecord.parse(data)):
            self.transport.sendto(bytes(reply.pack()), addr)


def answer(query, address="192.0.2.7"):
    reply = query.reply(aa=0)
    reply.add_answer(*dnslib.RR.fromZone(f"www.example. 60 IN A {address}"))
    return reply


@asynccontextmanager
async def serving(directory, **replies):
    """Servers at 127.0.0.N: those of ``replies`` reply, in their order."""
    loop = asyncio.get_running_loop()
    servers, port = {}, 0
    for host, make in replies.items():
        address = f"127.0.0.{host.removeprefix('at')}"
        transport, server = await loop.create_datagram_endpoint(
            lambda make=make: Server(make), local_addr=(address, port)
        )
        port = transport.get_extra_info("sockname")[1]
        servers[address] = server
    configuration = directory / "resolv.conf"
    configuration.write_text("".join(f"nameserver {address}\n" for address in servers))
    try:
        yield Upstream(configuration=configuration, port=port), list(servers.values())
    finally:
        for server in servers.values():
            server.transport.close()


def address_in(reply):
    return str(dnslib.DNSRecord.parse(reply.packet).rr[0].rdata)


async def test_the_first_server_is_queried(tmp_path):
    async with serving(tmp_path, at1=lambda q: [answer(q)], at2=lambda q: []) as (one, servers):
        assert address_in(await one.query(QUERY)) == "192.0.2.7"
        assert [len(server.senders) for server in servers] == [1, 0]


async def test_each_query_has_a_random_port_and_id(tmp_path):
    numbers = []

    def replies(query):
        numbers.append(query.header.id)
        return [answer(query)]

    async with serving(tmp_path, at1=replies) as (one, (server,)):
        for _ in range(8):
            await one.query(QUERY)
        assert len({port for _, port in server.senders}) > 4
        assert len(set(numbers)) > 4


async def test_spoofed_replies_are_ignored(tmp_path):
    def replies(query):
        guessed, other, right = (answer(query, f"192.0.2.{n}") for n in (66, 67, 7))
        guessed.header.id ^= 1
        other.questions = [dnslib.DNSQuestion("www.example.org")]
        return [guessed, other, query, right]

    async with serving(tmp_path, at1=replies) as (one, _):
        assert address_in(await one.query(QUERY)) == "192.0.2.7"


async def test_a_silent_server_is_queried_last_afterwards(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "SERVER_TIMEOUT_SECONDS", 0.05)

    def silent(_query):
        monkeypatch.setattr(module, "SERVER_TIMEOUT_SECONDS", 60)  # the other may take its time
        return []

    async with serving(tmp_path, at1=silent, at2=lambda q: [answer(q)]) as (one, servers):
        for _ in range(3):
            assert await one.query(QUERY) is not None
        assert [len(server.senders) for server in servers] == [1, 3]
        assert one.problem == ""


async def test_after_a_servfail_the_next_server_is_queried(tmp_path):
    def fails(query):
        reply = query.reply(aa=0)
        reply.header.rcode = dnslib.RCODE.SERVFAIL
        return [reply]

    async with serving(tmp_path, at1=fails, at2=lambda q: [answer(q)]) as (one, _):
        assert address_in(await one.query(QUERY)) == "192.0.2.7"
    async with serving(tmp_path, at1=fails) as (one, _):
        assert (await one.query(QUERY)).code == dnslib.RCODE.SERVFAIL
        assert one.problem == ""


async def test_unavailability_of_all_servers_is_logged_once_and_its_end(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "SERVER_TIMEOUT_SECONDS", 0.02)
    speaks = False
    problems = []
    async with serving(tmp_path, at1=lambda q: [answer(q)] if speaks else []) as (one, _):
        one._health._changed = lambda: problems.append(one.problem)
        for _ in range(5):
            assert await one.query(QUERY) is None
        speaks = True
        monkeypatch.setattr(module, "SERVER_TIMEOUT_SECONDS", 60)
        assert await one.query(QUERY) is not None
    assert problems == ["no name server of the host replies (127.0.0.1)", ""]


async def test_truncated_replies_are_repeated_over_tcp(tmp_path):
    def cut(query):
        reply = query.reply(aa=0)
        reply.header.tc = 1
        return [reply]

    async def whole(reader, writer):
        length = int.from_bytes(await reader.readexactly(2), "big")
        packet = answer(
            dnslib.DNSRecord.parse(await reader.readexactly(length)), "192.0.2.8"
        ).pack()
        writer.write(len(packet).to_bytes(2, "big") + packet)
        await writer.drain()
        writer.close()

    async with serving(tmp_path, at1=cut) as (one, (server,)):
        port = server.transport.get_extra_info("sockname")[1]
        streams = await asyncio.start_server(whole, "127.0.0.1", port)
        async with streams:
            assert address_in(await one.query(QUERY)) == "192.0.2.8"


def test_a_changed_resolv_conf_is_read_again(tmp_path):
    configuration = tmp_path / "resolv.conf"
    one = Upstream(configuration=configuration, excluded=["10.96.0.10"])
    assert one.servers() == ()
    configuration.write_text("nameserver 192.0.2.1\n")
    assert one.servers() == ["192.0.2.1"]
    configuration.write_text(
        "nameserver 10.96.0.10\nnameserver nonsense\n"
        + "".join(f"nameserver 192.0.2.{n}\n" for n in range(2, 9))
    )
    os.utime(configuration, (1, 1))
    assert one.servers() == ["192.0.2.2", "192.0.2.3", "192.0.2.4"]
    configuration.unlink()
    assert one.servers() == ()


@pytest.mark.parametrize("text", ["", "nameserver\n", "options rotate\n"])
async def test_without_servers_queries_fail_at_once_with_a_log_line(tmp_path, text):
    configuration = tmp_path / "resolv.conf"
    configuration.write_text(text)
    one = Upstream(configuration=configuration)
    async with asyncio.timeout(module.SERVER_TIMEOUT_SECONDS):
        assert await one.query(QUERY) is None
    assert one.problem == f"{configuration} names no name server"
