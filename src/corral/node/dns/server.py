"""Serves the cluster's DNS where the machines' way out is.

Names of the cluster are answered at once, from indexes that follow the API; all others are handed
on to the host's servers.  Only machines and their host are answered, and nobody may ask so much
that others are not heard.
"""

import asyncio
import socket
import struct
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from ipaddress import ip_address, ip_network
from typing import Final, Protocol, cast

import structlog
from lightkube.models.core_v1 import Namespace, Service
from lightkube.models.discovery_v1 import EndpointSlice

from corral.aio import Background
from corral.failures import describe
from corral.node.dns.codec import LARGEST_STREAM, LONGEST_QUERY, Malformed, Query, read
from corral.node.dns.lookup import FAILED, Lookup
from corral.node.dns.nft_rate_limit import MARK, rules, table_of
from corral.node.dns.upstream import Upstream
from corral.node.dns.zone import Zone
from corral.node.health import Health
from corral.node.network import namespaces, nft
from corral.node.network.netlink import Address, Network as Range, NetworkError
from corral.reconcile.context import ControllerContext
from corral.reconcile.objects import key_of

PORT: Final = 53
DOMAIN: Final = "cluster.local"
MOST_AWAITED: Final = 32
MOST_AWAITED_BY_ALL: Final = 256
"""For how many answers from outside one source may wait, and all together."""
MOST_CONNECTIONS: Final = 8
MOST_CONNECTIONS_OF_ALL: Final = 256
MOST_ON_CONNECTION: Final = 100
IDLE_SECONDS: Final = 10.0
"""TCP connections of one source at a time, and of all; how many queries one may bring, and how long
it may be silent (RFC 7766 6.2.3)."""
RETRY_SECONDS: Final = 5.0
_LENGTH: Final = struct.Struct("!H")

log = structlog.get_logger()


class Network(Protocol):
    """What the server needs of the machines' network."""

    @property
    def namespace(self) -> namespaces.Namespace: ...
    @property
    def gateways(self) -> Sequence[Address]: ...
    @property
    def pod_cidrs(self) -> Sequence[Range]: ...
    @property
    def service_cidrs(self) -> Sequence[Range]: ...
    async def bound(self, address: Address, port: int, kind: int = ...) -> socket.socket: ...


class Dns:
    """The name server of a machine network: it serves on each of the network's gateways."""

    def __init__(
        self,
        context: ControllerContext,
        network: Network,
        *,
        domain: str = DOMAIN,
        addresses: Sequence[str] = (),
        clients: Sequence[Range] = (),
        upstream: Upstream | None = None,
        port: int = PORT,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        """``addresses`` are those of the Service that leads here: what ``ns.dns`` answers.

        ``clients`` are ranges that are answered beside the machines'.  ``on_change`` is told when
        ``problems`` answers something new.
        """
        gateways = [str(one) for one in network.gateways]
        self._network = network
        self._port = port
        self._health = Health("DNS", on_change)
        own = [ip_network(str(one)) for one in network.gateways]
        self._clients = (*network.pod_cidrs, *own, *clients)
        self._upstream = upstream or Upstream(ours=[*addresses, *gateways], on_change=on_change)
        self._zone = Zone(
            domain,
            servers=addresses or gateways,
            ranges=[str(one) for one in (*network.pod_cidrs, *network.service_cidrs)],
            serial=int(context.clock().timestamp()) & 0xFFFFFFFF,
        )
        self._lookup = Lookup(self._zone, self._upstream)
        self._awaited = Counter[str]()
        self._connected = Counter[str]()
        """By source: answers from outside that it waits for, and its connections."""
        self._woken = asyncio.Event()
        self._namespaces = context.informers.of(Namespace)
        self._services = context.informers.of(Service)
        self._slices = context.informers.of(EndpointSlice)
        self._namespaces.handle(self._namespace_changed)
        self._services.handle(self._service_changed)
        self._slices.handle(self._slice_changed)

    def problems(self) -> Sequence[str]:
        """What is wrong, a line each."""
        return [each for each in (self._health.problem, self._upstream.problem) if each]

    async def run(self) -> None:
        """Serve until cancelled."""
        for informer in (self._namespaces, self._services, self._slices):
            await informer.synced()
        async with Background() as tasks:
            for gateway in self._network.gateways:
                _ = tasks.start(self._serve(gateway, tasks), name=f"dns {gateway}")
            await tasks.start(self._guard(), name="dns guard")

    def resync(self) -> None:
        """Somebody may have removed the tables."""
        self._woken.set()

    async def _guard(self) -> None:
        """Put back what keeps one guest's questions from drowning the others', where it is gone."""
        while True:
            await self._woken.wait()
            self._woken.clear()
            for gateway in self._network.gateways:
                try:
                    await self._network.namespace.call(ensure, gateway, self._port)
                except NetworkError as error:
                    log.warning("questions are not limited", error=error.full_message)
                    await asyncio.sleep(RETRY_SECONDS)
                    self._woken.set()

    # ------------------------------------------------------------------ names

    def _namespace_changed(self, old: Namespace | None, new: Namespace | None) -> None:
        if new is not None:
            self._zone.put_namespace(key_of(new).name)
        elif old is not None:
            self._zone.drop_namespace(key_of(old).name)

    def _service_changed(self, old: Service | None, new: Service | None) -> None:
        if new is not None:
            self._zone.put_service(key_of(new), new)
        elif old is not None:
            self._zone.drop_service(key_of(old))

    def _slice_changed(self, old: EndpointSlice | None, new: EndpointSlice | None) -> None:
        if new is not None:
            self._zone.put_slice(key_of(new), new)
        elif old is not None:
            self._zone.drop_slice(key_of(old))

    # ---------------------------------------------------------------- sockets

    async def _serve(self, gateway: Address, tasks: Background) -> None:
        """Listen on an address, by UDP and TCP; where that fails, say so and try again."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                await self._network.namespace.call(ensure, gateway, self._port)
                bound = partial(self._network.bound, gateway, self._port)
                with (
                    await bound(socket.SOCK_DGRAM) as datagrams,
                    await bound(socket.SOCK_STREAM) as streams,
                ):
                    streams.listen()
                    self._health.report("")
                    transport, _ = await loop.create_datagram_endpoint(
                        lambda: _Datagrams(self, tasks), sock=datagrams
                    )
                    try:
                        await self._accept(streams, tasks)
                    finally:
                        transport.close()
            except (OSError, NetworkError) as error:
                self._health.report(f"DNS cannot serve on {gateway}: {describe(error)}")
                await asyncio.sleep(RETRY_SECONDS)

    async def _accept(self, listening: socket.socket, tasks: Background) -> None:
        loop = asyncio.get_running_loop()
        while True:
            connection, address = await loop.sock_accept(listening)
            if self._is_enough(address[0]) or not self.admits(address[0]):
                connection.close()
                continue
            self._connected[address[0]] += 1
            _ = tasks.start(self._converse(connection, address[0]), name="dns connection")

    def _is_enough(self, source: str) -> bool:
        """Whether a source, or all together, have as many connections as they may."""
        return (
            self._connected[source] >= MOST_CONNECTIONS
            or self._connected.total() >= MOST_CONNECTIONS_OF_ALL
        )

    async def _converse(self, connection: socket.socket, source: str) -> None:
        """Answer the queries of a connection, one after the other."""
        try:
            reader, writer = await asyncio.open_connection(sock=connection)
            try:
                with suppress(asyncio.IncompleteReadError):
                    await self._answer_all(reader, writer, source)
                writer.close()
                async with asyncio.timeout(IDLE_SECONDS):
                    await writer.wait_closed()
            finally:
                writer.transport.abort()
        except (OSError, TimeoutError, ValueError):
            connection.close()
        finally:
            _release(self._connected, source)

    async def _answer_all(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, source: str
    ) -> None:
        for _ in range(MOST_ON_CONNECTION):
            reply = await self._reply(await _next(reader), source)
            if not reply:
                return
            writer.write(_LENGTH.pack(len(reply)) + reply)
            async with asyncio.timeout(IDLE_SECONDS):
                await writer.drain()

    async def _reply(self, packet: bytes, source: str) -> bytes:
        try:
            query = read(packet)
        except Malformed as error:
            return error.reply
        reply = self.find(query, LARGEST_STREAM)
        return await self.fetch(query, source, LARGEST_STREAM) if reply is None else reply

    # ---------------------------------------------------------------- answers

    def admits(self, source: str) -> bool:
        """Whether a source is one of ours."""
        address = ip_address(source.partition("%")[0])
        return any(address in each for each in self._clients)

    def find(self, query: Query, largest: int) -> bytes | None:
        """The packet that answers at once; None where the outside has to be asked."""
        return self._lookup.find(query, largest)

    async def fetch(self, query: Query, source: str, largest: int) -> bytes:
        """The packet that answers a query for which the outside has to be asked."""
        if self._awaited[source] >= MOST_AWAITED or self._awaited.total() >= MOST_AWAITED_BY_ALL:
            return self._lookup.packet(query, FAILED, largest)
        self._awaited[source] += 1
        try:
            return self._lookup.packet(query, await self._lookup.fetch(query), largest)
        except Exception:
            # The one door: nothing that somebody outside replies may end more than its question.
            log.exception("a name cannot be looked up", type=query.type)
            return self._lookup.packet(query, FAILED, largest)
        finally:
            _release(self._awaited, source)


class _Datagrams(asyncio.DatagramProtocol):
    """Queries by UDP."""

    def __init__(self, dns: Dns, tasks: Background) -> None:
        self._dns = dns
        self._tasks = tasks
        self._transport: asyncio.DatagramTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.DatagramTransport", transport)

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        if not self._dns.admits(addr[0]):
            return
        try:
            query = read(data)
        except Malformed as error:
            if error.reply:
                self._send(error.reply, addr)
            return
        reply = self._dns.find(query, query.size)
        if reply is not None:
            self._send(reply, addr)
        else:
            _ = self._tasks.start(self._fetch(query, addr), name="dns query")

    async def _fetch(self, query: Query, addr: tuple[str, int]) -> None:
        self._send(await self._dns.fetch(query, addr[0], query.size), addr)

    def _send(self, packet: bytes, addr: tuple[str, int]) -> None:
        assert self._transport is not None
        if not self._transport.is_closing():
            self._transport.sendto(packet, addr)

    def error_received(self, exc: Exception) -> None:
        log.debug("an answer did not arrive", error=str(exc))


async def _next(reader: asyncio.StreamReader) -> bytes:
    """The next query of a connection.

    Raises IncompleteReadError at its end, ValueError for one that is too long, TimeoutError.
    """
    async with asyncio.timeout(IDLE_SECONDS):
        (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
        if length > LONGEST_QUERY:
            raise ValueError("too long a query")
        return await reader.readexactly(length)


def ensure(gateway: Address, port: int) -> None:
    """Put an address's table in place where it is not there, or not whole.

    Acts on the calling thread's namespace; raises NetworkError.
    """
    with suppress(NetworkError):
        if MARK in nft.query(f"list table {table_of(gateway)}", members=False):
            return
    nft.apply(rules(gateway, port))


def _release(counts: Counter[str], source: str) -> None:
    counts[source] -= 1
    if not counts[source]:
        del counts[source]
