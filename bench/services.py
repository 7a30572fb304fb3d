"""Services: how soon a change is in the kernel, and a pod reachable, among 500 of ten endpoints."""

import asyncio
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from ipaddress import IPv4Address
from pathlib import Path

from lightkube.models.core_v1 import Namespace, Pod, Service
from lightkube.models.discovery_v1 import EndpointSlice

from bench.figure import Figure
from bench.pods import SERVICES, Scene, answered, obtain_rights, scene
from corral.aio import Background
from corral.api.object import Key
from corral.api.request import User
from corral.client.client import Client
from corral.client.transport import InProcess
from corral.cluster import endpoints
from corral.node.proxy.proxy import Proxy, write_table
from corral.reconcile.batch import for_each
from corral.reconcile.context import ControllerContext
from corral.server.admission.service_allocation import ServiceRanges
from corral.server.app import ApiServer
from corral.store import Store

ADMIN = User(name="kubernetes-admin", groups=("system:masters", "system:authenticated"))
COUNT, ENDPOINTS = 500, 10
BUSY = IPv4Address("10.96.4.0")
"""Services from here on, whose endpoints are never asked."""
CHANGING, WATCHED = "10.96.0.20", "10.96.0.21"
"""Services that are: the endpoints of one are written by hand, those of the other are of pods."""
FIRST, SECOND = "10.244.0.2", "10.244.0.3"
PATIENCE_SECONDS = 30.0


def measure() -> list[Figure]:
    with tempfile.TemporaryDirectory() as directory:
        obtain_rights(Path(directory))
        return asyncio.run(_measure())


async def _measure() -> list[Figure]:
    async with _cluster() as (stage, client, proxy):
        pods = [stage.pod("first", FIRST), stage.pod("second", SECOND)]
        caller = stage.pod("caller", "10.244.0.250").namespace
        for pod in pods:
            await pod.serve()
        await _fill(client)
        await client.create(Service, _service("changing", CHANGING))
        await client.create(EndpointSlice, _slice("changing", [FIRST]))
        await client.create(Service, _service("watched", WATCHED, selector={"app": "x"}))
        await client.create(Pod, _pod("first"))
        await _until(lambda: _answers(caller, CHANGING, "first"))

        async def change(number: int) -> None:
            ip = SECOND if number % 2 == 0 else FIRST
            change = {"endpoints": [{"addresses": [ip]}]}
            await client.patch(EndpointSlice, Key("default", "changing"), change)

        changes = []
        for number in range(60):
            wanted = "second" if number % 2 == 0 else "first"
            begun = time.perf_counter()
            await change(number)
            await _until(lambda name=wanted: _answers(caller, CHANGING, name))
            changes.append((time.perf_counter() - begun) * 1e3)

        ready = []
        for _ in range(20):
            await _report(client, "first", ready=False)
            await _until(lambda: _refuses(caller, WATCHED))
            await asyncio.sleep(0.2)
            begun = time.perf_counter()
            await _report(client, "first", ready=True)
            await _until(lambda: _answers(caller, WATCHED, "first"))
            ready.append((time.perf_counter() - begun) * 1e3)

        whole = []
        for _ in range(9):
            begun = time.perf_counter()
            await stage.namespace.call(write_table, proxy.rules)
            whole.append((time.perf_counter() - begun) * 1e3)

        through = [await _timed(caller, WATCHED, 80) for _ in range(300)]
        direct = [await _timed(caller, FIRST, 8080) for _ in range(300)]
    notes = {"services": COUNT, "endpoints": ENDPOINTS}
    return [
        Figure("endpoint written → new connections follow", changes, "ms", "≤ 100 ms", notes),
        Figure("pod ready → reachable through its Service", ready, "ms", "≤ 100 ms", notes),
        Figure("all rules replaced", whole, "ms", "", notes),
        Figure("connection through a Service, answered", through, "ms", "as direct", notes),
        Figure("connection to the pod itself, answered", direct, "ms", "", notes),
    ]


@asynccontextmanager
async def _cluster() -> AsyncIterator[tuple[Scene, Client, Proxy]]:
    store = Store.in_memory()
    server = ApiServer(store, services=ServiceRanges(networks=SERVICES))
    client = Client(InProcess(server.handle, ADMIN))
    async with scene() as stage, Background() as tasks:
        await client.create(Namespace, {"metadata": {"name": "default"}})
        context = ControllerContext(Client(InProcess(server.handle, ADMIN)))
        controller = endpoints.controller(context)
        proxy = Proxy(context, stage, nodes=("node0",))
        tasks.start(context.run(), name="context")
        tasks.start(controller.run(), name="endpoints")
        tasks.start(proxy.run(), name="proxy")
        yield stage, client, proxy
    await store.close()


async def _fill(client: Client) -> None:
    async def one(number: int) -> None:
        first = int(IPv4Address("10.244.16.0")) + number * ENDPOINTS
        ips = [str(IPv4Address(first + each)) for each in range(ENDPOINTS)]
        await client.create(Service, _service(f"busy{number}", str(BUSY + number)))
        await client.create(EndpointSlice, _slice(f"busy{number}", ips))

    refused = await for_each(range(COUNT), one)
    if refused:
        raise refused[0]


def _service(name: str, address: str, **spec: object) -> dict:
    ports = [{"port": 80, "targetPort": 8080}]
    return {
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"clusterIP": address, "ports": ports, **spec},
    }


def _slice(name: str, ips: list[str]) -> dict:
    labels = {"kubernetes.io/service-name": name}
    return {
        "metadata": {"name": name, "namespace": "default", "labels": labels},
        "addressType": "IPv4",
        "ports": [{"name": "", "port": 8080, "protocol": "TCP"}],
        "endpoints": [{"addresses": [ip]} for ip in ips],
    }


def _pod(name: str) -> dict:
    return {
        "metadata": {"name": name, "namespace": "default", "labels": {"app": "x"}},
        "spec": {"containers": [{"name": "c", "image": "i"}], "nodeName": "node0"},
    }


async def _report(client: Client, name: str, *, ready: bool) -> None:
    status = {
        "phase": "Running",
        "podIP": FIRST,
        "podIPs": [{"ip": FIRST}],
        "conditions": [{"type": "Ready", "status": str(ready)}],
    }
    await client.patch(Pod, Key("default", name), {"status": status}, subresource="status")


async def _answers(caller: object, address: str, name: str) -> bool:
    try:
        return await answered(caller, address, 80) == name
    except OSError:
        return False


async def _refuses(caller: object, address: str) -> bool:
    try:
        await answered(caller, address, 80)
    except ConnectionRefusedError:
        return True
    return False


async def _timed(caller: object, address: str, port: int) -> float:
    begun = time.perf_counter()
    await answered(caller, address, port)
    return (time.perf_counter() - begun) * 1e3


async def _until(holds: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not await holds():
            await asyncio.sleep(0)
