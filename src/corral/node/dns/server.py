"""The cluster's DNS server, on the gateways of the machine network.

Names of the cluster are answered from indexes of cached Services and EndpointSlices; others are
forwarded to the host's servers.  Only machines and the host are clients, and limits for each source
keep one of them from starving the others.
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
from corral.node.dns.codec import (
    MAX_QUERY_BYTES,
    MAX_TCP_BYTES,
    MalformedQuery,
    Query,
    decode_query,
)
from corral.node.dns.lookup import SERVFAIL, Lookup
from corral.node.dns.nft_rate_limit import MARK, rules, table_name
from corral.node.dns.upstream import Upstream
from corral.node.dns.zone import Zone
from corral.node.health import Health
from corral.node.network import namespaces, nft
from corral.node.network.netlink import Address, Network as Range, NetworkError
from corral.reconcile.context import ControllerContext
from corral.reconcile.objects import key_of

PORT: Final = 53
DOMAIN: Final = "cluster.local"
MAX_FORWARDED_PER_SOURCE: Final = 32
MAX_FORWARDED: Final = 256
"""Concurrent forwarded queries of one source, and of all."""
MAX_CONNECTIONS_PER_SOURCE: Final = 8
MAX_CONNECTIONS: Final = 256
MAX_QUERIES_PER_CONNECTION: Final = 100
IDLE_SECONDS: Final = 10.0
"""TCP connections of one source, and of all; the queries on one, and its idle timeout (RFC 7766
6.2.3)."""
RETRY_SECONDS: Final = 5.0
_LENGTH: Final = struct.Struct("!H")

log = structlog.get_logger()


class Network(Protocol):
    """The part of the machine network that the server needs."""

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
    """The DNS server of a machine network, on each of its gateways."""

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
        """Answer ``ns.dns`` with ``addresses``, those of the DNS Service.

        ``clients`` are ranges of clients besides the machines'.  ``on_change`` is called when
        ``problems()`` changes.
        """
        gateways = [str(each) for each in network.gateways]
        self._network = network
        self._port = port
        self._health = Health("DNS", on_change)
        own_addresses = [ip_network(str(each)) for each in network.gateways]
        self._clients = (*network.pod_cidrs, *own_addresses, *clients)
        self._upstream = upstream or Upstream(excluded=[*addresses, *gateways], on_change=on_change)
        self._zone = Zone(
            domain,
            servers=addresses or gateways,
            ranges=[str(each) for each in (*network.pod_cidrs, *network.service_cidrs)],
            serial=int(context.clock().timestamp()) & 0xFFFFFFFF,
        )
        self._lookup = Lookup(self._zone, self._upstream)
        self._forwarded = Counter[str]()
        self._connections = Counter[str]()
        """Forwarded queries and connections, by source."""
        self._resync_needed = asyncio.Event()
        self._namespaces = context.informers.of(Namespace)
        self._services = context.informers.of(Service)
        self._slices = context.informers.of(EndpointSlice)
        self._namespaces.handle(self._namespace_changed)
        self._services.handle(self._service_changed)
        self._slices.handle(self._slice_changed)

    def problems(self) -> Sequence[str]:
        """Return the problems, a line each."""
        return [each for each in (self._health.problem, self._upstream.problem) if each]

    async def run(self) -> None:
        """Serve until cancelled."""
        for informer in (self._namespaces, self._services, self._slices):
            await informer.synced()
        async with Background() as tasks:
            for gateway in self._network.gateways:
                _ = tasks.start(self._serve(gateway, tasks), name=f"dns {gateway}")
            await tasks.start(self._restore_rate_limits(), name="dns guard")

    def resync(self) -> None:
        """Check the rate limits: their tables may have been removed."""
        self._resync_needed.set()

    async def _restore_rate_limits(self) -> None:
        """Restore removed rate limits."""
        while True:
            await self._resync_needed.wait()
            self._resync_needed.clear()
            for gateway in self._network.gateways:
                try:
                    await self._network.namespace.call(ensure_rate_limit, gateway, self._port)
                except NetworkError as error:
                    log.warning("DNS queries are not rate-limited", error=error.full_message)
                    await asyncio.sleep(RETRY_SECONDS)
                    self._resync_needed.set()

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
        """Listen on an address, by UDP and TCP; report and retry failures."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                await self._network.namespace.call(ensure_rate_limit, gateway, self._port)
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

    async def _accept(self, listener: socket.socket, tasks: Background) -> None:
        loop = asyncio.get_running_loop()
        while True:
            connection, address = await loop.sock_accept(listener)
            if self._has_too_many_connections(address[0]) or not self.is_client(address[0]):
                connection.close()
                continue
            self._connections[address[0]] += 1
            _ = tasks.start(self._serve_connection(connection, address[0]), name="dns connection")

    def _has_too_many_connections(self, source: str) -> bool:
        """Report whether a source, or all together, have reached the limit of connections."""
        return (
            self._connections[source] >= MAX_CONNECTIONS_PER_SOURCE
            or self._connections.total() >= MAX_CONNECTIONS
        )

    async def _serve_connection(self, connection: socket.socket, source: str) -> None:
        """Answer the queries of a connection, in order."""
        try:
            reader, writer = await asyncio.open_connection(sock=connection)
            try:
                with suppress(asyncio.IncompleteReadError):
                    await self._answer_queries(reader, writer, source)
                writer.close()
                async with asyncio.timeout(IDLE_SECONDS):
                    await writer.wait_closed()
            finally:
                writer.transport.abort()
        except (OSError, TimeoutError, ValueError):
            connection.close()
        finally:
            _release(self._connections, source)

    async def _answer_queries(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, source: str
    ) -> None:
        for _ in range(MAX_QUERIES_PER_CONNECTION):
            reply = await self._answer(await _read_query(reader), source)
            if not reply:
                return
            writer.write(_LENGTH.pack(len(reply)) + reply)
            async with asyncio.timeout(IDLE_SECONDS):
                await writer.drain()

    async def _answer(self, packet: bytes, source: str) -> bytes:
        try:
            query = decode_query(packet)
        except MalformedQuery as error:
            return error.reply
        reply = self.answer_locally(query, MAX_TCP_BYTES)
        return await self.resolve(query, source, MAX_TCP_BYTES) if reply is None else reply

    # ---------------------------------------------------------------- answers

    def is_client(self, source: str) -> bool:
        """Report whether a source is a client."""
        address = ip_address(source.partition("%")[0])
        return any(address in each for each in self._clients)

    def answer_locally(self, query: Query, max_bytes: int) -> bytes | None:
        """Return the response, if it need not be forwarded."""
        return self._lookup.answer_locally(query, max_bytes)

    async def resolve(self, query: Query, source: str, max_bytes: int) -> bytes:
        """Return the response to a query that must be forwarded."""
        if (
            self._forwarded[source] >= MAX_FORWARDED_PER_SOURCE
            or self._forwarded.total() >= MAX_FORWARDED
        ):
            return self._lookup.encode(query, SERVFAIL, max_bytes)
        self._forwarded[source] += 1
        try:
            return self._lookup.encode(query, await self._lookup.resolve(query), max_bytes)
        except Exception:
            # No reply of an upstream server may end more than its own query.
            log.exception("a DNS query failed", type=query.type)
            return self._lookup.encode(query, SERVFAIL, max_bytes)
        finally:
            _release(self._forwarded, source)


class _Datagrams(asyncio.DatagramProtocol):
    """UDP queries."""

    def __init__(self, dns: Dns, tasks: Background) -> None:
        self._dns = dns
        self._tasks = tasks
        self._transport: asyncio.DatagramTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.DatagramTransport", transport)

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        if not self._dns.is_client(addr[0]):
            return
        try:
            query = decode_query(data)
        except MalformedQuery as error:
            if error.reply:
                self._send(error.reply, addr)
            return
        reply = self._dns.answer_locally(query, query.size)
        if reply is not None:
            self._send(reply, addr)
        else:
            _ = self._tasks.start(self._resolve(query, addr), name="dns query")

    async def _resolve(self, query: Query, addr: tuple[str, int]) -> None:
        self._send(await self._dns.resolve(query, addr[0], query.size), addr)

    def _send(self, packet: bytes, addr: tuple[str, int]) -> None:
        assert self._transport is not None
        if not self._transport.is_closing():
            self._transport.sendto(packet, addr)

    def error_received(self, exc: Exception) -> None:
        log.debug("a DNS response cannot be delivered", error=str(exc))


async def _read_query(reader: asyncio.StreamReader) -> bytes:
    """Return the next query of a connection.

    Raises IncompleteReadError at its end, ValueError for an oversized query, TimeoutError.
    """
    async with asyncio.timeout(IDLE_SECONDS):
        (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
        if length > MAX_QUERY_BYTES:
            raise ValueError("oversized query")
        return await reader.readexactly(length)


def ensure_rate_limit(gateway: Address, port: int) -> None:
    """Create the rate limit of an address, if its table is missing or incomplete.

    Acts on the calling thread's namespace; raises NetworkError.
    """
    with suppress(NetworkError):
        if MARK in nft.query(f"list table {table_name(gateway)}", members=False):
            return
    nft.apply(rules(gateway, port))


def _release(counts: Counter[str], source: str) -> None:
    counts[source] -= 1
    if not counts[source]:
        del counts[source]
