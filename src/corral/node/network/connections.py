"""Connections to machines: from a network that has sockets, and from the host's own."""

import asyncio
import socket
from abc import ABC, abstractmethod
from typing import Final

CONNECT_SECONDS: Final = 10.0
Connection = socket.socket  # in Connections ``socket`` is a method


class Connections(ABC):
    """Connects to addresses that the sockets of a network reach."""

    @abstractmethod
    async def socket(self, family: int, kind: int) -> Connection:
        """Return a non-blocking socket in the network.  Raises OSError."""

    async def connect(self, address: str, port: int) -> Connection:
        """Return a TCP connection.  Raises OSError, TimeoutError after ``CONNECT_SECONDS``."""
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        connected = await self.socket(family, socket.SOCK_STREAM)
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                await asyncio.get_running_loop().sock_connect(connected, (address, port))
        except BaseException:
            connected.close()
            raise
        return connected


class HostConnections(Connections):
    """Connects to pods by the routes of the host, as a kubelet does."""

    async def socket(self, family: int, kind: int) -> Connection:
        """Return a non-blocking socket of the host.  Raises OSError."""
        return socket.socket(family, kind | socket.SOCK_NONBLOCK)
