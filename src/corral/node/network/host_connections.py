"""Connections to machines from the host's own network, where pods are reached as a kubelet does."""

import asyncio
import socket
from typing import Final

CONNECT_SECONDS: Final = 10.0
Connection = socket.socket  # in HostConnections ``socket`` is a method


class HostConnections:
    """Connects to pods by the routes of the host."""

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

    async def socket(self, family: int, kind: int) -> Connection:
        """Return a non-blocking socket.  Raises OSError."""
        return socket.socket(family, kind | socket.SOCK_NONBLOCK)
