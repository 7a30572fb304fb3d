"""Forwards queries to the host's name servers.

Each query is sent from a random port with a random ID, the only protection of UDP against spoofed
replies.
"""

import asyncio
import secrets
import struct
from collections.abc import Callable, Sequence
from ipaddress import ip_address
from pathlib import Path
from typing import Final

from corral.node.dns.codec import Query, encode_query
from corral.node.dns.records import Code
from corral.node.dns.reply import MAX_REPLY_BYTES, Reply, decode_reply
from corral.node.health import Health
from corral.node.network.resolver import RESOLV_CONF, parse

PORT: Final = 53
SERVER_TIMEOUT_SECONDS: Final = 2.0
"""Timeout of one server."""
QUERY_TIMEOUT_SECONDS: Final = 4.5
"""Timeout of all servers together: a guest waits for 5 s (resolv.conf(5), timeout)."""
MAX_SERVERS: Final = 3
FAILURES_BEFORE_REPORT: Final = 3
"""Consecutive queries without any reply that are reported."""
_RETRY_CODES: Final = (Code.SERVFAIL, Code.NOTIMP, Code.REFUSED, Code.FORMERR)
"""Response codes for which the next server is tried."""
_LENGTH: Final = struct.Struct("!H")


class Upstream:
    """The name servers in the host's resolv.conf, which is read again when it changes."""

    def __init__(
        self,
        *,
        configuration: Path = RESOLV_CONF,
        port: int = PORT,
        excluded: Sequence[str] = (),
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        """Exclude our own addresses, ``excluded``, from the servers.

        ``on_change`` is called when ``problem`` changes.
        """
        self._configuration = configuration
        self._port = port
        self._excluded = {ip_address(each) for each in excluded}
        self._health = Health("upstream DNS", on_change)
        self._read_version: tuple[int, int, int] | None = None
        self._servers: Sequence[str] = ()
        self._failures = 0

    async def query(self, query: Query) -> Reply | None:
        """Return the reply to a query, or None if no server replies in time."""
        last_error = None
        try:
            async with asyncio.timeout(QUERY_TIMEOUT_SECONDS):
                for server in self.servers():
                    reply = await self._query_server(server, query)
                    if reply is None:
                        self._move_to_end(server)
                    elif reply.code not in _RETRY_CODES:
                        self._record_success()
                        return reply
                    else:
                        last_error = reply
        except TimeoutError:
            pass
        if last_error is None:
            self._record_failure()
        else:
            self._record_success()
        return last_error

    def _record_success(self) -> None:
        self._failures = 0
        self._health.report("")

    def _record_failure(self) -> None:
        self._failures += 1
        if not self._servers:
            self._health.report(f"{self._configuration} names no name server")
        elif self._failures >= FAILURES_BEFORE_REPORT:
            self._health.report(f"no name server of the host replies ({', '.join(self._servers)})")

    def servers(self) -> Sequence[str]:
        """Return the servers in the order of use; those that did not reply come last."""
        try:
            status = self._configuration.stat()
            version = (status.st_ino, status.st_mtime_ns, status.st_size)
            if version != self._read_version:
                text = self._configuration.read_text(encoding="utf-8", errors="replace")
                usable = [each for each in parse(text).servers if self._is_usable(each)]
                self._servers, self._read_version = usable[:MAX_SERVERS], version
        except OSError:
            self._servers, self._read_version = (), None
        return self._servers

    def _is_usable(self, server: str) -> bool:
        try:
            return ip_address(server) not in self._excluded
        except ValueError:
            return False

    def _move_to_end(self, server: str) -> None:
        """Move a server behind the others."""
        if server in self._servers:
            self._servers = [*(each for each in self._servers if each != server), server]

    async def _query_server(self, server: str, query: Query) -> Reply | None:
        try:
            async with asyncio.timeout(SERVER_TIMEOUT_SECONDS):
                reply = await self._query_udp(server, query)
                return await self._query_tcp(server, query) if reply.truncated else reply
        except (OSError, TimeoutError, ValueError, asyncio.IncompleteReadError):
            return None

    async def _query_udp(self, server: str, query: Query) -> Reply:
        id_ = secrets.randbits(16)
        loop = asyncio.get_running_loop()
        transport, exchange = await loop.create_datagram_endpoint(
            lambda: _UdpExchange(query, id_), remote_addr=(server, self._port)
        )
        try:
            transport.sendto(encode_query(query, id_))
            return await exchange.reply
        finally:
            transport.close()

    async def _query_tcp(self, server: str, query: Query) -> Reply:
        """Query by TCP, after a truncated reply."""
        id_ = secrets.randbits(16)
        reader, writer = await asyncio.open_connection(server, self._port)
        try:
            packet = encode_query(query, id_)
            writer.write(_LENGTH.pack(len(packet)) + packet)
            (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
            if length > MAX_REPLY_BYTES:
                raise ValueError("oversized reply")
            return decode_reply(await reader.readexactly(length), query, id_)
        finally:
            writer.close()

    @property
    def problem(self) -> str:
        """The reason why names are not resolved; empty while they are."""
        return self._health.problem


class _UdpExchange(asyncio.DatagramProtocol):
    """One query by UDP; packets that are no reply to it are ignored, as they may be spoofed."""

    def __init__(self, query: Query, id_: int) -> None:
        self._query = query
        self._number = id_
        self.reply: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()

    def datagram_received(self, data: bytes, addr: tuple[str | int, ...]) -> None:  # noqa: ARG002
        if self.reply.done():
            return
        try:
            self.reply.set_result(decode_reply(data, self._query, self._number))
        except ValueError:
            return

    def error_received(self, exc: Exception) -> None:
        if not self.reply.done():
            self.reply.set_exception(exc)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.reply.done():
            self.reply.set_exception(exc or ConnectionAbortedError())
