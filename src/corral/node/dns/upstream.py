"""Asks the host's name servers about the rest of the world.

Queries leave from the host, each from a port and with a number that nobody can guess, since a
reply by UDP is believed for nothing else.
"""

import asyncio
import secrets
import struct
from collections.abc import Callable, Sequence
from ipaddress import ip_address
from pathlib import Path
from typing import Final

from corral.node.dns.codec import Query, ask
from corral.node.dns.records import Code
from corral.node.dns.reply import LARGEST, Reply, read_reply
from corral.node.health import Health
from corral.node.network.resolver import RESOLV_CONF, parse

PORT: Final = 53
SERVER_SECONDS: Final = 2.0
"""How long one server may take."""
ASK_SECONDS: Final = 4.5
"""And all of them: a guest waits for 5 s (resolv.conf(5), timeout)."""
MOST_SERVERS: Final = 3
FAILURES: Final = 3
"""So many names in a row without any reply are the servers' fault, not the names'."""
_USELESS: Final = (Code.FAILED, Code.NOT_IMPLEMENTED, Code.REFUSED, Code.MALFORMED)
"""What another server may know better."""
_LENGTH: Final = struct.Struct("!H")


class Upstream:
    """The name servers of the host's resolv.conf, which may change at any time."""

    def __init__(
        self,
        *,
        configuration: Path = RESOLV_CONF,
        port: int = PORT,
        ours: Sequence[str] = (),
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        """``ours`` are addresses that are never asked: our own.

        ``on_change`` is told when ``problem`` answers something new.
        """
        self._configuration = configuration
        self._port = port
        self._ours = {ip_address(one) for one in ours}
        self._health = Health("names of the outside", on_change)
        self._read: tuple[int, int, int] | None = None
        self._servers: Sequence[str] = ()
        self._failures = 0

    async def ask(self, query: Query) -> Reply | None:
        """The reply to a query, or None where no server gives one in time."""
        useless = None
        try:
            async with asyncio.timeout(ASK_SECONDS):
                for server in self.servers():
                    reply = await self._ask(server, query)
                    if reply is None:
                        self._postpone(server)
                    elif reply.code not in _USELESS:
                        self._replied()
                        return reply
                    else:
                        useless = reply
        except TimeoutError:
            pass
        if useless is None:
            self._failed()
        else:
            self._replied()
        return useless

    def _replied(self) -> None:
        self._failures = 0
        self._health.report("")

    def _failed(self) -> None:
        self._failures += 1
        if not self._servers:
            self._health.report(f"{self._configuration} names no name server")
        elif self._failures >= FAILURES:
            self._health.report(f"no name server of the host replies ({', '.join(self._servers)})")

    def servers(self) -> Sequence[str]:
        """The addresses to ask, in order; those that did not reply come last."""
        try:
            status = self._configuration.stat()
            version = (status.st_ino, status.st_mtime_ns, status.st_size)
            if version != self._read:
                text = self._configuration.read_text(encoding="utf-8", errors="replace")
                usable = [one for one in parse(text).servers if self._is_usable(one)]
                self._servers, self._read = usable[:MOST_SERVERS], version
        except OSError:
            self._servers, self._read = (), None
        return self._servers

    def _is_usable(self, server: str) -> bool:
        try:
            return ip_address(server) not in self._ours
        except ValueError:
            return False

    def _postpone(self, server: str) -> None:
        """Ask the others first from now on."""
        if server in self._servers:
            self._servers = [*(one for one in self._servers if one != server), server]

    async def _ask(self, server: str, query: Query) -> Reply | None:
        try:
            async with asyncio.timeout(SERVER_SECONDS):
                reply = await self._datagram(server, query)
                return await self._stream(server, query) if reply.truncated else reply
        except (OSError, TimeoutError, ValueError, asyncio.IncompleteReadError):
            return None

    async def _datagram(self, server: str, query: Query) -> Reply:
        number = secrets.randbits(16)
        loop = asyncio.get_running_loop()
        transport, exchange = await loop.create_datagram_endpoint(
            lambda: _Exchange(query, number), remote_addr=(server, self._port)
        )
        try:
            transport.sendto(ask(query, number))
            return await exchange.reply
        finally:
            transport.close()

    async def _stream(self, server: str, query: Query) -> Reply:
        """The same by TCP, where a reply did not fit into a datagram."""
        number = secrets.randbits(16)
        reader, writer = await asyncio.open_connection(server, self._port)
        try:
            packet = ask(query, number)
            writer.write(_LENGTH.pack(len(packet)) + packet)
            (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
            if length > LARGEST:
                raise ValueError("too large a reply")
            return read_reply(await reader.readexactly(length), query, number)
        finally:
            writer.close()

    @property
    def problem(self) -> str:
        """Why they are not resolved; empty while they are."""
        return self._health.problem


class _Exchange(asyncio.DatagramProtocol):
    """One query by UDP; whatever is no reply to it is ignored, for anybody may have sent that."""

    def __init__(self, query: Query, number: int) -> None:
        self._query = query
        self._number = number
        self.reply: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()

    def datagram_received(self, data: bytes, addr: tuple[str | int, ...]) -> None:  # noqa: ARG002
        if self.reply.done():
            return
        try:
            self.reply.set_result(read_reply(data, self._query, self._number))
        except ValueError:
            return

    def error_received(self, exc: Exception) -> None:
        if not self.reply.done():
            self.reply.set_exception(exc)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.reply.done():
            self.reply.set_exception(exc or ConnectionAbortedError())
