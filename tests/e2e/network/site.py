"""A machine network with pods that are bare namespaces, and a server that knows them: for sessions.

A session is a program of its own, since who is not root enters a user namespace for good: it acts,
and prints what it saw as JSON.
"""

import asyncio
import json
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from ipaddress import ip_interface, ip_network
from pathlib import Path

from lightkube.models.core_v1 import Namespace as ApiNamespace, Pod as ApiPod

from corral.aio import Background
from corral.api.object import Key
from corral.api.request import User
from corral.client.client import Client
from corral.client.transport import InProcess
from corral.node.network import netlink
from corral.node.network.machine_network import MachineNetwork, remove
from corral.node.network.namespaces import Namespace
from corral.reconcile.context import ControllerContext
from corral.server.admission.service_allocation import ServiceRanges
from corral.server.app import ApiServer
from corral.store import Store

ADMIN = User(name="kubernetes-admin", groups=("system:masters", "system:authenticated"))
BRIEF, PATIENCE = 0.5, 120.0
"""Seconds to wait for what shall not come, and at most for what shall."""


@dataclass
class Pod:
    """A namespace with an address of each family, as a pod is."""

    name: str
    addresses: tuple[str, ...]
    namespace: Namespace
    router: str
    """The hardware address of the machine's end of its link."""

    @property
    def address(self) -> str:
        return self.addresses[0]


@dataclass
class Site:
    """The parts that a session uses."""

    network: MachineNetwork
    client: Client
    context: ControllerContext
    tasks: Background
    directory: Path
    saw: dict[str, object] = field(default_factory=dict)
    pods: dict[str, Pod] = field(default_factory=dict)

    async def link(self, name: str, number: int) -> Pod:
        """A pod's namespace and links; the API does not know of it."""
        addresses = [cidr[number] for cidr in self.network.pod_cidrs]
        inside, outside = Namespace.create(), f"pod{number}"

        def join() -> str:
            with netlink.opened() as link:
                link.add_veth(outside, peer="eth0", peer_namespace=inside.descriptor)
                link.change(outside)
                for address in addresses:
                    link.add_route(ip_network(address), link=outside)
                return link.links()[outside].mac

        def furnish(mac: str) -> None:
            with netlink.opened() as link:
                link.change("lo")
                link.change("eth0")
                for address, gateway in zip(addresses, self.network.gateways, strict=True):
                    link.add_address("eth0", ip_interface(address))
                    link.add_neighbour("eth0", gateway, mac)
                    link.add_route(ip_network(gateway), link="eth0")
                    whole = ip_network("0.0.0.0/0" if gateway.version == 4 else "::/0")
                    link.add_route(whole, link="eth0", via=gateway)

        router = await self.network.namespace.call(join)
        await inside.call(furnish, router)
        pod = self.pods[name] = Pod(name, tuple(map(str, addresses)), inside, router)
        return pod

    async def relabel(self, pod: Pod, **labels: str) -> None:
        """Write a pod with labels to the API."""
        key = Key("default", pod.name)
        document = {
            "metadata": {"name": pod.name, "namespace": "default", "labels": labels},
            "spec": {
                "containers": [
                    {
                        "name": "compute",
                        "image": "none",
                        "ports": [{"name": "http", "containerPort": 8080}],
                    }
                ]
            },
        }
        await self.client.create(ApiPod, document)
        addresses = [{"ip": address} for address in pod.addresses]
        status = {"phase": "Running", "podIP": pod.address, "podIPs": addresses}
        await self.client.patch(ApiPod, key, {"status": status}, subresource="status")

    async def serve(self, pod: Pod, *ports: int) -> None:
        """Echo what arrives at these ports of a pod."""

        async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while data := await reader.read(100):
                writer.write(data)
            writer.close()

        for port in ports:
            listening = await pod.namespace.call(listen, port)
            server = await asyncio.start_server(echo, sock=listening)
            self.tasks.start(server.serve_forever(), name=f"echo {pod.name}")

    async def connect(
        self,
        source: Pod | MachineNetwork,
        target: Pod,
        port: int,
        which: int = 0,
        *,
        seconds: float = PATIENCE,
    ) -> socket.socket:
        """A connection to one of a pod's addresses.  Raises OSError, TimeoutError."""
        address = target.addresses[which]
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        made = await source.namespace.call(socket.socket, family, socket.SOCK_STREAM)
        made.setblocking(False)
        try:
            async with asyncio.timeout(seconds):
                await asyncio.get_running_loop().sock_connect(made, (address, port))
        except BaseException:
            made.close()
            raise
        return made

    async def reaches(
        self,
        source: Pod | MachineNetwork,
        target: Pod,
        port: int,
        which: int = 0,
        *,
        seconds: float = BRIEF,
    ) -> bool:
        """Return whether a connection can be made."""
        try:
            (await self.connect(source, target, port, which, seconds=seconds)).close()
        except (OSError, TimeoutError):
            return False
        return True

    async def until(self, condition: Callable[[], Awaitable[bool]]) -> float:
        """Milliseconds until a condition comes true."""
        loop = asyncio.get_running_loop()
        begun = loop.time()
        async with asyncio.timeout(PATIENCE):
            while not await condition():
                await asyncio.sleep(0.002)
        return round((loop.time() - begun) * 1000, 1)


def listen(port: int) -> socket.socket:
    """A listener on all addresses of the namespace."""
    return socket.create_server(("::", port), family=socket.AF_INET6, dualstack_ipv6=True)


@asynccontextmanager
async def opened(network: MachineNetwork, directory: Path) -> AsyncIterator[Site]:
    """A site for the length of a block; nothing of it is left."""
    store = Store.in_memory()
    server = ApiServer(store, services=ServiceRanges(networks=network.service_cidrs))
    client = Client(InProcess(server.handle, ADMIN))
    context = ControllerContext(Client(InProcess(server.handle, ADMIN)))
    try:
        await network.prepare()
        for name in ("default", "kube-system", "team"):
            document = {"metadata": {"name": name, "labels": {"name": name}}}
            await client.create(ApiNamespace, document)
        async with Background() as tasks:
            tasks.start(context.run(), name="context")
            site = Site(network, client, context, tasks, directory)
            yield site
            for pod in site.pods.values():
                pod.namespace.close()
    finally:
        await store.close()
        await remove(directory)


def play(session: Callable[[Site], Awaitable[None]], number: int) -> None:
    """Run a session in the directory that the command names; ``number`` keeps ranges apart."""
    directory = Path(sys.argv[1])
    directory.mkdir(parents=True, exist_ok=True)
    network = MachineNetwork(
        directory,
        pod_cidrs=[ip_network(f"10.{number}.0.0/16"), ip_network(f"fd00:10:{number}::/56")],
        service_cidrs=[
            ip_network(f"10.{number + 1}.0.0/16"),
            ip_network(f"fd00:10:{number + 1}::/112"),
        ],
    )
    network.join()

    async def whole() -> dict[str, object]:
        async with opened(network, directory) as site:
            await session(site)
            return site.saw

    print(json.dumps(asyncio.run(whole())))  # noqa: T201
