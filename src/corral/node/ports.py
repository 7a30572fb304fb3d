"""The way to a port of a machine: over the pods' network, from where that network is.

``corral.node.network`` is such a network; where there is none, machines are behind QEMU's user
network, where nothing reaches them.
"""

import asyncio
import os
import socket
from ipaddress import ip_address
from typing import Protocol

from corral.node.hypervisor import GuestError, Line
from corral.node.lines import DatagramLine, StreamLine

CONNECT_SECONDS = 10.0


class Network(Protocol):
    """What is needed of the network of the pods."""

    async def socket(self, family: int, kind: int) -> socket.socket:
        """A socket that does not block, in the namespace of the network."""


class Ports:
    """Opens ports of machines."""

    def __init__(self, network: Network | None) -> None:
        self._network = network

    async def tcp(self, address: str, port: int, *, seconds: float = CONNECT_SECONDS) -> StreamLine:
        """A connection.  Raises GuestError, in Go's words for a failed dial, as KubeVirt's are."""
        connected = await self._socket(address, socket.SOCK_STREAM)
        try:
            async with asyncio.timeout(seconds):
                loop = asyncio.get_running_loop()
                await loop.sock_connect(connected, (address, port))
            reader, writer = await asyncio.open_connection(sock=connected)
        except BaseException as error:
            connected.close()
            if isinstance(error, TimeoutError):
                raise GuestError(_failed("tcp", address, port, "i/o timeout")) from error
            if isinstance(error, OSError):
                raise GuestError(_failed("tcp", address, port, _reason(error))) from error
            raise
        return StreamLine(reader, writer)

    async def udp(self, address: str, port: int) -> DatagramLine:
        """Datagrams to and from a port.  Raises GuestError."""
        connected = await self._socket(address, socket.SOCK_DGRAM)
        try:
            connected.connect((address, port))
        except OSError as error:
            connected.close()
            raise GuestError(_failed("udp", address, port, _reason(error))) from error
        return DatagramLine(connected)

    async def open(self, address: str, port: int, protocol: str) -> Line:
        """By ``tcp`` or ``udp``.  Raises GuestError."""
        return await (self.udp if protocol == "udp" else self.tcp)(address, port)

    async def _socket(self, address: str, kind: int) -> socket.socket:
        if self._network is None:
            raise GuestError(
                "the machine is behind QEMU's user network, where nothing reaches it; "
                "corral status says why this host has no other"
            )
        if not address:
            raise GuestError("the machine has no address yet")
        family = socket.AF_INET6 if ip_address(address).version == 6 else socket.AF_INET
        try:
            return await self._network.socket(family, kind)
        except OSError as error:
            raise GuestError(f"the network of the machines cannot be entered: {error}") from error


def _failed(protocol: str, address: str, port: int, reason: str) -> str:
    host = f"[{address}]" if ":" in address else address
    return f"dial {protocol} {host}:{port}: connect: {reason}"


def _reason(error: OSError) -> str:
    return (os.strerror(error.errno) if error.errno else str(error)).lower()
