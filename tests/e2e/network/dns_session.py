"""Names asked for from a pod that is a bare namespace; prints what was answered."""

import asyncio
import subprocess
import sys

import dnslib
from lightkube.models.core_v1 import Service
from lightkube.models.discovery_v1 import EndpointSlice
from tests.e2e.network.site import PATIENCE, Pod, Site, play

from corral.api.object import Key
from corral.node.dns.nft_rate_limit import table_name
from corral.node.dns.server import Dns
from corral.node.dns.upstream import Upstream
from corral.node.network import nft

SLICE = {"kubernetes.io/service-name": "head"}


class Outside(asyncio.DatagramProtocol):
    """A name server of the host: it knows one name, and counts."""

    def __init__(self) -> None:
        self.asked = 0

    def connection_made(self, transport) -> None:
        self.transport = transport

    def datagram_received(self, data: bytes, addr) -> None:
        self.asked += 1
        query = dnslib.DNSRecord.parse(data)
        name = str(query.q.qname).lower()
        reply = query.reply(aa=0)
        if name.endswith("silent.example."):
            return
        if name == "large.example.":
            reply.header.tc = 1
        elif name == "www.example.":
            reply.add_answer(*dnslib.RR.fromZone("www.example. 60 IN A 192.0.2.7"))
        else:
            reply.header.rcode = dnslib.RCODE.NXDOMAIN
        self.transport.sendto(bytes(reply.pack()), addr)


async def large(reader, writer) -> None:
    """The same server by TCP."""
    length = int.from_bytes(await reader.readexactly(2), "big")
    reply = dnslib.DNSRecord.parse(await reader.readexactly(length)).reply(aa=0)
    for number in range(100):
        reply.add_answer(*dnslib.RR.fromZone(f"large.example. 60 IN A 192.0.2.{number}"))
    packet = reply.pack()
    writer.write(len(packet).to_bytes(2, "big") + packet)
    await writer.drain()
    writer.close()


async def session(site: Site) -> None:
    saw, loop = site.saw, asyncio.get_running_loop()
    gateway = str(site.network.gateway)
    pod = await site.link("vm1", 5)
    stranger = await site.link("stranger", 6)

    def ask(
        name: str,
        kind: str = "A",
        *,
        server: str = gateway,
        tcp: bool = False,
        size: int = 0,
        seconds: float = PATIENCE,
    ) -> object:
        query = dnslib.DNSRecord.question(name, kind)
        if size:
            query.add_ar(dnslib.EDNS0(udp_len=size))
        reply = dnslib.DNSRecord.parse(
            query.send(server, 53, tcp=tcp, timeout=seconds, ipv6=":" in server)
        )
        assert reply.header.id == query.header.id
        code = dnslib.RCODE[reply.header.rcode]
        return [code, bool(reply.header.tc), sorted(str(one.rdata) for one in reply.rr)]

    async def asked(label: str, *arguments, source: Pod = pod, **options) -> None:
        begun = loop.time()
        try:
            saw[label] = await source.namespace.call(lambda: ask(*arguments, **options))
        except (TimeoutError, OSError):
            saw[label] = "silence"
        saw[f"{label} ms"] = round((loop.time() - begun) * 1000, 1)

    outside, server = await loop.create_datagram_endpoint(Outside, local_addr=("127.0.0.1", 0))
    port = outside.get_extra_info("sockname")[1]
    streams = await asyncio.start_server(large, "127.0.0.1", port)
    configuration = site.directory / "resolv.conf"
    configuration.write_text("nameserver 127.0.0.2\nnameserver 127.0.0.1\n")
    upstream = Upstream(configuration=configuration, port=port)
    dns = Dns(site.context, site.network, upstream=upstream)
    site.tasks.start(dns.run(), name="dns")

    for name, spec in {
        "web": {"clusterIP": str(site.network.service_cidrs[0][20]), "ports": [{"port": 80}]},
        "head": {"clusterIP": "None", "ports": [{"port": 80, "name": "http"}]},
        "alias": {"type": "ExternalName", "externalName": "www.example"},
        "inner": {"type": "ExternalName", "externalName": "web.default.svc.cluster.local"},
    }.items():
        await site.client.create(
            Service, {"metadata": {"name": name, "namespace": "default"}, "spec": spec}
        )
    members = [
        {"addresses": [f"10.1.{n // 250}.{n % 250}"], "hostname": f"vm{n}"} for n in range(200)
    ]
    for part in (0, 100):
        document = {
            "metadata": {"name": f"head-{part}", "namespace": "default", "labels": SLICE},
            "addressType": "IPv4",
            "endpoints": members[part : part + 100],
            "ports": [{"name": "http", "port": 80, "protocol": "TCP"}],
        }
        await site.client.create(EndpointSlice, document)

    last = str(site.network.gateways[-1])
    for excluded in (gateway, last):  # a link that is new may lose the first packets
        saw["warm"] = "silence"
        while saw["warm"] == "silence":
            await asked("warm", "web.default.svc.cluster.local", server=excluded, seconds=1)
    await asked("service", "web.default.svc.cluster.local")
    await asked("service, last family", "web.default.svc.cluster.local", server=last)
    await asked("member", "vm7.head.default.svc.cluster.local")
    await asked("members", "head.default.svc.cluster.local")
    await asked("members, large", "head.default.svc.cluster.local", size=4096)
    await asked("members by tcp", "head.default.svc.cluster.local", tcp=True)
    await asked("nobody", "nobody.default.svc.cluster.local")
    await asked("version", "dns-version.cluster.local", "TXT")
    await asked("outside", "www.example")
    before = server.asked
    await asked("outside again", "WWW.example")
    saw["asked again"] = server.asked - before
    await asked("outside, nobody", "nobody.example")
    await asked("outside, large", "large.example", tcp=True)
    await asked("alias", "alias.default.svc.cluster.local")
    await asked("inner", "inner.default.svc.cluster.local")
    await asked("silent", "silent.example")
    saw["problems"] = dns.problems()
    await asyncio.gather(*(asked("silence", f"{n}.silent.example") for n in range(3)))
    saw["problems then"] = dns.problems()

    configuration.write_text("")
    await asked("no server", "other.example")
    saw["problems without"] = dns.problems()
    configuration.write_text("nameserver 127.0.0.1\n")
    await asked("a server again", "third.example")
    saw["problems at last"] = dns.problems()

    await site.client.delete(Service, Key("default", "web"))
    await asked("gone", "web.default.svc.cluster.local")

    shouting = asyncio.create_task(stranger.namespace.call(shout, gateway))
    for number in range(5):
        await asked(f"under noise {number}", "dns-version.cluster.local", "TXT")
    await shouting
    await asyncio.sleep(0.3)  # whoever shouted has to be silent for a while to be heard
    await asked("after the noise", "dns-version.cluster.local", "TXT", source=stranger)
    saw["nslookup"] = await pod.namespace.call(nslookup, gateway)
    await site.network.namespace.call(nft.apply, "flush ruleset")
    dns.resync()
    saw["guarded again ms"] = await site.until(lambda: is_guarded(site))
    outside.close()
    streams.close()


async def is_guarded(site: Site) -> bool:
    tables = await site.network.namespace.call(nft.query, "list tables")
    return all(table_name(each) in tables for each in site.network.gateways)


def shout(server: str) -> None:
    """Ask much more than anybody may, from a process that shares nothing with the server."""
    packet = dnslib.DNSRecord.question("dns-version.cluster.local", "TXT").pack().hex()
    program = f"""
import socket
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as noise:
    for _ in range(20_000):
        noise.sendto(bytes.fromhex("{packet}"), ("{server}", 53))
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=PATIENCE)


def nslookup(server: str) -> str:
    """Return the answer as another resolver reads it."""
    done = subprocess.run(
        ["busybox", "nslookup", "vm7.head.default.svc.cluster.local", server],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    return done.stdout


if __name__ == "__main__":
    play(session, 213)
