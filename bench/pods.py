"""Pods without machines: network namespaces, routed as a machine's pods are, with small servers."""

import asyncio
import os
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, suppress
from ipaddress import ip_address, ip_interface, ip_network
from pathlib import Path
from typing import Any, Self

from corral.node.host import process
from corral.node.network import namespace_holder, netlink
from corral.node.network.namespaces import Namespace

PODS = (ip_network("10.244.0.0/16"), ip_network("fd00:10:244::/56"))
SERVICES = (ip_network("10.96.0.0/12"), ip_network("fd00:10:96::/112"))
GATEWAYS = (ip_address("10.244.0.1"), ip_address("fd00:10:244::1"))
PATIENCE_SECONDS = 120.0
AGAIN_SECONDS = 1.0
"""A datagram that nobody has answered for so long may be lost, and is sent anew."""


def obtain_rights(directory: Path) -> None:
    """Enter a user namespace, where we are not root; before there are threads.

    Who is in it may have networks; whose process holds it need not live on.
    """
    if os.geteuid() != 0:
        namespace_holder.join(directory)
        identity = process.find(directory)
        assert identity is not None
        os.kill(identity.pid, signal.SIGKILL)


class Pod:
    """A namespace with one link, and sockets in it."""

    def __init__(self, scene: "Scene", name: str, *addresses: str) -> None:
        self.name = name
        self.addresses = addresses
        self.namespace = scene.keep(Namespace.create())
        self._scene = scene
        self._link = f"pod-{name}"
        self._scene.machine.run(self._connect)
        self.namespace.run(self._furnish)

    def _connect(self) -> None:
        with netlink.opened() as link:
            link.add_veth(self._link, peer="eth0", peer_namespace=self.namespace.descriptor)
            link.change(self._link)
            # What is routed to the pod finds the pod, and the pod finds its gateway.
            for address in self.addresses:
                link.add_route(ip_network(address), link=self._link)
                version = ip_address(address).version
                netlink.set_sysctl(f"ipv{version}/conf/{self._link}/proxy_{ARP[version]}", 1)
            for gateway in GATEWAYS[1:]:
                link.add_proxy(self._link, gateway)

    def _furnish(self) -> None:
        netlink.set_sysctl("ipv6/conf/eth0/accept_dad", 0)
        with netlink.opened() as link:
            link.change("lo")
            link.change("eth0")
            for address in self.addresses:
                gateway = GATEWAYS[0 if ip_address(address).version == 4 else 1]
                link.add_address("eth0", ip_interface(address))
                link.add_route(ip_network(gateway), link="eth0")
                whole = ip_network("0.0.0.0/0" if gateway.version == 4 else "::/0")
                link.add_route(whole, via=gateway)

    async def serve(self, port: int = 8080) -> None:
        """Answer each TCP client with the pod's name and the client's address, then echo."""
        name = self.name

        stack = self._scene.stack

        class Answer(asyncio.Protocol):
            def connection_made(self, transport: Any) -> None:
                self.transport = transport
                stack.callback(transport.abort)
                host = transport.get_extra_info("peername")[0].removeprefix("::ffff:")
                transport.write(f"{name} {host}\n".encode())

            def data_received(self, data: bytes) -> None:
                self.transport.write(data)

        listener = self.namespace.run(_listener, port)
        loop = asyncio.get_running_loop()
        server = await loop.create_server(Answer, sock=listener)
        self._scene.stack.callback(server.close)

    async def serve_datagrams(self, port: int = 8080) -> None:
        """Answer each UDP datagram with the pod's name, and what it was asked."""
        name = self.name.encode()

        class Answer(asyncio.DatagramProtocol):
            def connection_made(self, transport: Any) -> None:
                self.transport = transport

            def datagram_received(self, data: bytes, client: Any) -> None:
                self.transport.sendto(b"%b %b" % (name, data), client)

        sock = self.namespace.run(_datagrams, port)
        loop = asyncio.get_running_loop()
        transport, _ = await loop.create_datagram_endpoint(Answer, sock=sock)
        self._scene.stack.callback(transport.close)

    def vanish(self) -> None:
        """The link goes, and with it the route, as when the machine ends."""

        def gone() -> None:
            with netlink.opened() as link:
                link.delete(self._link)

        self._scene.machine.run(gone)


ARP = {4: "arp", 6: "ndp"}


class Scene:
    """A machine namespace and its pods."""

    def __init__(self, stack: AsyncExitStack) -> None:
        self.stack = stack
        self.machine = self.keep(Namespace.create())
        self.machine.run(self._furnish)

    pod_cidrs = PODS
    service_cidrs = SERVICES

    @property
    def namespace(self) -> Namespace:
        return self.machine

    def keep(self, namespace: Namespace) -> Namespace:
        return self.stack.enter_context(namespace)

    def pod(self, name: str, *addresses: str) -> Pod:
        return Pod(self, name, *addresses)

    def _furnish(self) -> None:
        netlink.set_sysctl("ipv4/ip_forward", 1)
        netlink.set_sysctl("ipv6/conf/all/forwarding", 1)
        with netlink.opened() as link:
            link.change("lo")
            for gateway in GATEWAYS:
                link.add_address("lo", ip_interface(gateway))
            for cidr in PODS:
                link.add_route(cidr)
            for cidr, gateway in zip(SERVICES, GATEWAYS, strict=True):
                link.add_route(cidr, link="lo", source=gateway)


@asynccontextmanager
async def scene() -> AsyncIterator[Scene]:
    """A machine namespace for the block."""
    async with AsyncExitStack() as stack:
        yield Scene(stack)


class Connection:
    """A TCP connection from a namespace."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, hello: str
    ) -> None:
        self.reader = reader
        self.writer = writer
        self.server, self.seen_as = hello.split()

    async def echo(self) -> bool:
        """Whether the other side still answers; raises ConnectionResetError where it says no."""
        self.writer.write(b"again\n")
        async with asyncio.timeout(PATIENCE_SECONDS):
            return await self.reader.readline() == b"again\n"


@asynccontextmanager
async def connected(namespace: Namespace, address: str, port: int) -> AsyncIterator[Connection]:
    """A connection that was answered."""
    version = ip_address(address).version
    sock = namespace.run(_client, version, socket.SOCK_STREAM)
    with ExitStack() as stack:
        stack.callback(sock.close)
        async with asyncio.timeout(PATIENCE_SECONDS):
            await asyncio.get_running_loop().sock_connect(sock, (address, port))
            reader, writer = await asyncio.open_connection(sock=sock)
            stack.callback(writer.close)
            hello = (await reader.readline()).decode()
        yield Connection(reader, writer, hello)
        writer.close()


async def answered(namespace: Namespace, address: str, port: int) -> str:
    """The name of the pod that answers a new connection."""
    async with connected(namespace, address, port) as connection:
        return connection.server


class Asking:
    """A UDP socket that asks the same address again and again."""

    def __init__(self, namespace: Namespace, address: str, port: int) -> None:
        self.sock = namespace.run(_client, ip_address(address).version, socket.SOCK_DGRAM)
        self.sock.connect((address, port))
        self._questions = 0

    async def answer(self) -> str:
        """The name of the pod that answers a new question.

        Raises ConnectionRefusedError or PermissionError where the kernel says that nobody does.
        """
        self._questions += 1
        question = b"%d" % self._questions
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                await loop.sock_sendall(self.sock, question)
                with suppress(TimeoutError):
                    async with asyncio.timeout(AGAIN_SECONDS):
                        return await self._answer_to(question)

    async def _answer_to(self, question: bytes) -> str:
        """Skip late answers to earlier queries."""
        asked = None
        while asked != question:
            answer = await asyncio.get_running_loop().sock_recv(self.sock, 100)
            name, asked = answer.split()
        return name.decode()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.sock.close()


def _client(version: int, kind: int) -> socket.socket:
    family = socket.AF_INET if version == 4 else socket.AF_INET6
    return socket.socket(family, kind | socket.SOCK_NONBLOCK)


def _listener(port: int) -> socket.socket:
    return socket.create_server(("::", port), family=socket.AF_INET6, dualstack_ipv6=True)


def _datagrams(port: int) -> socket.socket:
    sock = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
    sock.bind(("::", port))
    return sock
