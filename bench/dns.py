"""Names: how soon one is answered among 500 Services, and how soon a new one is known."""

import asyncio
import json
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path

from lightkube.models.core_v1 import Namespace, Service
from lightkube.models.discovery_v1 import EndpointSlice

from bench.figure import Figure, percentile
from bench.pods import GATEWAYS, Pod, Scene, obtain_rights
from corral.aio import Background
from corral.api.request import User
from corral.client.client import Client
from corral.client.transport import InProcess
from corral.node.dns.codec import encode_query, make_query
from corral.node.dns.records import Type, parse_name
from corral.node.dns.server import Dns
from corral.reconcile.batch import for_each
from corral.reconcile.context import ControllerContext
from corral.server.app import ApiServer
from corral.store import Store

ADMIN = User(name="kubernetes-admin", groups=("system:masters", "system:authenticated"))
COUNT, MEMBERS, QUERIES = 500, 100, 1000
PAUSE_SECONDS = 0.004
"""Between two queries: one source may ask 500 a second."""
CLIENT = """
import json, socket, sys, time
packets, took = [bytes.fromhex(each) for each in json.load(sys.stdin)], []
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
    sock.settimeout(5)
    sock.connect((sys.argv[1], 53))
    for packet in packets:
        time.sleep(float(sys.argv[2]))
        begun = time.perf_counter()
        sock.send(packet)
        answer = sock.recv(4096)
        took.append((time.perf_counter() - begun) * 1e3)
        assert answer[:2] == packet[:2] and answer[6:8] != bytes(2), answer
print(json.dumps(took))
"""


class Network(Scene):
    """A scene as the name server sees a machine network."""

    gateways = GATEWAYS[:1]

    async def bound(
        self, address: object, port: int, kind: int = socket.SOCK_STREAM
    ) -> socket.socket:
        made = self.machine.run(socket.socket, socket.AF_INET, kind | socket.SOCK_NONBLOCK)
        made.bind((str(address), port))
        return made


def measure() -> list[Figure]:
    with tempfile.TemporaryDirectory() as directory:
        obtain_rights(Path(directory))
        return asyncio.run(_measure())


async def _measure() -> list[Figure]:
    async with _cluster() as (pod, client):
        single = [f"service-{n % COUNT}.default.svc.cluster.local" for n in range(QUERIES)]
        alone = await _asked(pod, single)
        many = await _asked(pod, ["members.default.svc.cluster.local"] * (QUERIES // 4))
        known = []
        for number in range(30):
            begun = time.perf_counter()
            await client.create(Service, _service(f"new-{number}", "None"))
            await client.create(EndpointSlice, _slice(f"new-{number}", 1))
            name = f"new-{number}.default.svc.cluster.local"
            while await pod.namespace.call(_code, _packet(name, number)) != 0:
                await asyncio.sleep(0)
            known.append((time.perf_counter() - begun) * 1e3)
    return [
        Figure(f"a Service's address, {COUNT} Services", alone, "ms", "≤ 5 ms"),
        Figure("the same, 99th of a hundred", [percentile(alone, 99)], "ms", "≤ 5 ms"),
        Figure(f"a headless Service of {MEMBERS} members", many, "ms", "≤ 5 ms"),
        Figure("headless Service made until its name is answered", known, "ms", "≤ 100 ms"),
    ]


@asynccontextmanager
async def _cluster() -> AsyncIterator[tuple[Pod, Client]]:
    store = Store.in_memory()
    server = ApiServer(store)
    client = Client(InProcess(server.handle, ADMIN))
    context = ControllerContext(Client(InProcess(server.handle, ADMIN)))
    async with AsyncExitStack() as stack, Background() as tasks:
        stage = Network(stack)
        await client.create(Namespace, {"metadata": {"name": "default"}})
        services = [_service(f"service-{n}", "") for n in range(COUNT)]
        refused = await for_each(
            [*services, _service("members", "None")], partial(_create, client, Service)
        )
        assert not refused, refused[0]
        await client.create(EndpointSlice, _slice("members", MEMBERS))
        tasks.start(context.run(), name="context")
        tasks.start(Dns(context, stage).run(), name="dns")
        pod = stage.pod("caller", "10.244.0.250")
        packet = _packet("members.default.svc.cluster.local", 1)
        while await pod.namespace.call(_code, packet) != 0:
            await asyncio.sleep(0.1)
        yield pod, client
    await store.close()


async def _create(client: Client, view: type, document: dict) -> None:
    await client.create(view, document)


async def _asked(pod: Pod, names: list[str]) -> list[float]:
    """Milliseconds until each of these names was answered, to a process in the pod."""
    packets = [_packet(name, number + 1).hex() for number, name in enumerate(names)]
    command = [sys.executable, "-c", CLIENT, str(GATEWAYS[0]), str(PAUSE_SECONDS)]

    def run() -> str:
        return subprocess.run(
            command, input=json.dumps(packets), capture_output=True, text=True, check=True
        ).stdout

    return json.loads(await pod.namespace.call(run))


def _packet(name: str, number: int) -> bytes:
    return encode_query(make_query(parse_name(name), Type.A), number)


def _code(packet: bytes) -> int:
    """What the server says to a query."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.settimeout(1)
        try:
            sock.connect((str(GATEWAYS[0]), 53))
            sock.send(packet)
            return sock.recv(4096)[3] & 15
        except OSError:
            return -1


def _service(name: str, address: str) -> dict:
    ports = [{"name": "http", "port": 80}]
    spec = {"ports": ports, **({"clusterIP": address} if address else {})}
    return {"metadata": {"name": name, "namespace": "default"}, "spec": spec}


def _slice(name: str, count: int) -> dict:
    labels = {"kubernetes.io/service-name": name}
    return {
        "metadata": {"name": f"{name}-1", "namespace": "default", "labels": labels},
        "addressType": "IPv4",
        "ports": [{"name": "http", "port": 80, "protocol": "TCP"}],
        "endpoints": [{"addresses": [f"10.244.1.{n}"]} for n in range(count)],
    }
