"""The server on a loopback: its own answers, queries to other servers, and its limits."""

import asyncio
import itertools
import socket
from contextlib import asynccontextmanager, closing, suppress
from ipaddress import ip_address, ip_network

import dnslib
import pytest
from bench.cluster import free_port
from lightkube.models.core_v1 import Namespace, Service

from corral.aio import Background
from corral.api.object import Key
from corral.api.request import User
from corral.client.client import Client
from corral.client.transport import InProcess
from corral.node.dns import server as dns_server
from corral.node.dns.codec import encode_query, make_query
from corral.node.dns.nft_rate_limit import rules
from corral.node.dns.records import Type, parse_name
from corral.node.dns.reply import decode_reply
from corral.node.dns.server import Dns
from corral.node.dns.upstream import Upstream
from corral.reconcile.context import ControllerContext
from corral.server.app import ApiServer
from corral.store import Store

ADMIN = User(name="kubernetes-admin", groups=("system:masters", "system:authenticated"))
LOCAL = "127.0.0.1"


class Inside:
    """A namespace that is the test's own; what is applied in it is noted."""

    def __init__(self):
        self.applied = []

    async def call(self, function, *arguments):
        self.applied.append(arguments)


class Network:
    """The loopback in the place of a machine network."""

    gateways = (ip_address(LOCAL),)
    pod_cidrs = (ip_network("127.0.0.0/8"),)
    service_cidrs = (ip_network("10.96.0.0/12"),)

    def __init__(self):
        self.namespace = Inside()
        self.refuses = 0

    async def bound(self, address, port, kind=socket.SOCK_STREAM):
        if self.refuses:
            self.refuses -= 1
            raise OSError(98, "Address already in use")
        made = socket.socket(socket.AF_INET, kind | socket.SOCK_NONBLOCK)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((str(address), port))
        return made


class Outside(Upstream):
    """Servers that reply when the test says so."""

    def __init__(self):
        super().__init__()
        self.queries = []
        self.speak = asyncio.Event()

    async def query(self, query):
        self.queries.append(query.name)
        await self.speak.wait()
        sent = dnslib.DNSRecord.parse(encode_query(query, 7))
        reply = sent.reply(aa=0)
        if query.name[0] == "silent":
            return None
        reply.add_answer(*dnslib.RR.fromZone(f"{'.'.join(query.name)}. 60 IN A 192.0.2.7"))
        return decode_reply(bytes(reply.pack()), query, 7)


class Running:
    """A server, and a client of it."""

    def __init__(self, dns, network, outside, client, port):
        self.dns, self.network, self.outside = dns, network, outside
        self.client, self.port = client, port

    async def ask(self, name, kind="A"):
        """What the server says by UDP: the code and the data of the answers."""
        loop = asyncio.get_running_loop()
        query = dnslib.DNSRecord.question(name, kind)
        with closing(
            socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        ) as one:
            one.connect((LOCAL, self.port))
            await loop.sock_sendall(one, bytes(query.pack()))
            async with asyncio.timeout(60):
                reply = dnslib.DNSRecord.parse(await loop.sock_recv(one, 2000))
        assert reply.header.id == query.header.id
        return dnslib.RCODE[reply.header.rcode], [str(each.rdata) for each in reply.rr]


@asynccontextmanager
async def running(**changes):
    store = Store.in_memory()
    server = ApiServer(store)
    client = Client(InProcess(server.handle, ADMIN))
    context = ControllerContext(Client(InProcess(server.handle, ADMIN)))
    network, outside, port = Network(), Outside(), free_port()
    for name, value in changes.items():
        setattr(network, name, value)
    dns = Dns(context, network, upstream=outside, port=port)
    try:
        async with Background() as tasks:
            await client.create(Namespace, {"metadata": {"name": "default"}})
            tasks.start(context.run(), name="context")
            tasks.start(dns.run(), name="dns")
            if "refuses" not in changes:
                async with asyncio.timeout(60):
                    while not await listens(port):
                        await asyncio.sleep(0.01)
            yield Running(dns, network, outside, client, port)
    finally:
        await store.close()


async def listens(port):
    try:
        _, writer = await asyncio.open_connection(LOCAL, port)
    except OSError:
        return False
    writer.close()
    return True


def service(name, **spec):
    return {"metadata": {"name": name, "namespace": "default"}, "spec": spec}


PORTS = [{"port": 80}]


async def test_services_have_names_as_long_as_they_exist():
    async with running() as one:
        name = "web.default.svc.cluster.local"
        await one.client.create(Service, service("web", clusterIP="10.96.9.9", ports=PORTS))
        async with asyncio.timeout(60):
            while await one.ask(name) != ("NOERROR", ["10.96.9.9"]):
                await asyncio.sleep(0.01)
            await one.client.delete(Service, Key("default", "web"))
            while (await one.ask(name))[0] != "NXDOMAIN":
                await asyncio.sleep(0.01)
        assert one.outside.queries == []


async def test_equal_queries_share_one_upstream_query():
    async with running() as one:
        names = ["www.example", "WWW.example", "www.example"]
        async with asyncio.TaskGroup() as group:
            asks = [group.create_task(one.ask(name)) for name in names]
            await asyncio.sleep(0.1)
            one.outside.speak.set()
        assert [each.result() for each in asks] == [("NOERROR", ["192.0.2.7"])] * 3
        assert len(one.outside.queries) == 1
        assert await one.ask("www.example") == ("NOERROR", ["192.0.2.7"])
        assert len(one.outside.queries) == 1


async def test_cluster_names_are_resolved_while_upstream_servers_are_silent():
    async with running() as one:
        async with asyncio.TaskGroup() as group:
            waiting = group.create_task(one.ask("silent.example"))
            assert await one.ask("dns-version.cluster.local", "TXT") == (
                "NOERROR",
                ['"1.1.0"'],
            )
            assert not waiting.done()
            one.outside.speak.set()
        assert waiting.result() == ("SERVFAIL", [])


async def test_pending_queries_per_client_are_limited(monkeypatch):
    monkeypatch.setattr(dns_server, "MAX_FORWARDED_PER_SOURCE", 3)
    async with running() as one, asyncio.TaskGroup() as group:
        asks = [group.create_task(one.ask(f"{number}.example")) for number in range(5)]
        refused = itertools.islice(asyncio.as_completed(asks), 2)
        assert [await each for each in refused] == [("SERVFAIL", [])] * 2
        assert sum(not each.done() for each in asks) == 3
        one.outside.speak.set()


async def test_cnames_are_followed_and_loops_detected():
    async with running() as one:
        one.outside.speak.set()
        for name, target in {
            "out": "www.example",
            "none": "silent.example",
            "circle": "circle.default.svc.cluster.local",
            "lost": "nobody.default.svc.cluster.local",
        }.items():
            await one.client.create(
                Service, service(name, type="ExternalName", externalName=target)
            )
        lost = ("NXDOMAIN", ["nobody.default.svc.cluster.local."])
        async with asyncio.timeout(60):
            while await one.ask("lost.default.svc.cluster.local") != lost:
                await asyncio.sleep(0.01)
        answers = {
            name: await one.ask(f"{name}.default.svc.cluster.local")
            for name in ("out", "none", "circle", "lost")
        }
        assert answers["out"] == ("NOERROR", ["www.example.", "192.0.2.7"])
        assert answers["none"] == ("SERVFAIL", [])
        assert answers["circle"][0] == "NOERROR"
        assert 1 < len(answers["circle"][1]) < 12
        assert answers["lost"] == lost
        alias = await one.ask("out.default.svc.cluster.local", "CNAME")
        assert alias == ("NOERROR", ["www.example."])


async def test_an_invalid_reply_fails_its_query_only():
    async with running() as one:

        async def broken(query):
            raise ZeroDivisionError

        one.outside.query = broken
        assert await one.ask("www.example") == ("SERVFAIL", [])
        assert await one.ask("dns-version.cluster.local", "TXT") == (
            "NOERROR",
            ['"1.1.0"'],
        )


@pytest.mark.parametrize("kind", ["ANY", "AXFR"])
async def test_messages_that_are_no_queries_are_rejected(kind):
    async with running() as one:
        assert await one.ask("cluster.local", kind) == ("REFUSED", [])


async def test_other_sources_get_no_response():
    async with running(refuses=99, pod_cidrs=(), gateways=(ip_address("127.0.0.2"),)) as one:
        assert one.dns.is_client("127.0.0.2")
        assert not one.dns.is_client("127.0.0.1")
        assert not one.dns.is_client("fe80::1%eth0")


async def test_a_tcp_connection_has_many_queries_until_an_invalid_one():
    async with running() as one:
        reader, writer = await asyncio.open_connection(LOCAL, one.port)
        packet = encode_query(make_query(parse_name("dns-version.cluster.local"), Type.TXT), 5)
        whole = len(packet).to_bytes(2, "big") + packet
        broken = b"\0\x0c\0\5\1" + bytes(9)
        writer.write(whole + broken + whole + b"\0\3abc" + whole)
        answers = []
        for _ in range(3):
            length = int.from_bytes(await reader.readexactly(2), "big")
            answers.append(dnslib.DNSRecord.parse(await reader.readexactly(length)))
        assert [each.header.rcode for each in answers] == [0, 1, 0]
        assert await reader.read() == b""
        writer.close()


async def test_a_tcp_connection_with_a_too_long_query_is_closed():
    async with running() as one:
        reader, writer = await asyncio.open_connection(LOCAL, one.port)
        writer.write(b"\xff\xff" + bytes(100))
        with suppress(ConnectionResetError):
            assert await reader.read() == b""
        writer.close()


async def test_an_address_in_use_is_reported_and_retried(monkeypatch):
    monkeypatch.setattr(dns_server, "RETRY_SECONDS", 0.01)
    async with running(refuses=3) as one:
        async with asyncio.timeout(60):
            while not one.dns.problems():
                await asyncio.sleep(0)
            assert "127.0.0.1" in one.dns.problems()[0]
            while one.dns.problems() or not await listens(one.port):
                await asyncio.sleep(0.01)


def test_the_kernel_rate_limits_queries_per_source():
    assert (
        rules(ip_address("10.244.0.1"), 53)
        == """\
table inet corral_dns4
delete table inet corral_dns4
table inet corral_dns4 {
  set sources {
    type ipv4_addr; size 65536; flags dynamic,timeout; timeout 10s
  }
  chain input {
    type filter hook input priority filter - 10; policy accept;
    ip daddr 10.244.0.1 udp dport 53 \
update @sources { ip saddr limit rate over 500/second burst 100 packets } drop
  }
}
"""
    )
