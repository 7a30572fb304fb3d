"""The way to a port of a machine: over the pods' network, from where that network is.

``corral.node.network`` is such a network; where there is none, machines are behind QEMU's user
network, where nothing reaches them.
"""

import asyncio
import os
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Protocol

from corral.aio import apart
from corral.node.host.destinations import FOR_TENANTS, Destinations, Refused
from corral.node.hypervisor import GuestError
from corral.node.streams import DatagramLine, Line, SecureLine, StreamLine

CONNECT_SECONDS = 10.0


class Network(Protocol):
    """What is needed of the network of the pods."""

    async def connect(self, address: str, port: int) -> socket.socket:
        """A TCP connection, by a socket that does not block.  Raises OSError."""

    async def socket(self, family: int, kind: int) -> socket.socket:
        """A socket that does not block, in the namespace of the network.  Raises OSError."""


class Ports:
    """Opens ports of machines."""

    def __init__(self, network: Network | None, destinations: Destinations = FOR_TENANTS) -> None:
        """``destinations``: where hosts may be that tenants name (``elsewhere``)."""
        self._network = network
        self._destinations = destinations

    def elsewhere(self) -> "Ports":
        """The ports of whatever host a tenant names: by an address, or as the node looks it up."""
        return _Elsewhere(self._network, self._destinations)

    async def tcp(self, address: str, port: int) -> StreamLine:
        """A connection.  Raises GuestError, in Go's words for a failed dial, as KubeVirt's are."""
        with _told("tcp", address, port):
            async with asyncio.timeout(CONNECT_SECONDS):
                return StreamLine(await self._connected(address, port))

    async def tls(self, address: str, port: int, tls: ssl.SSLContext) -> SecureLine:
        """A connection, and TLS in it.  Raises GuestError."""
        with _told("tcp", address, port):
            async with asyncio.timeout(CONNECT_SECONDS):
                connected = await self._connected(address, port)
                return await SecureLine.over(connected, tls)

    async def udp(self, address: str, port: int) -> DatagramLine:
        """Datagrams to and from a port.  Raises GuestError."""
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        with _told("udp", address, port):
            connected = await self._reach(address).socket(family, socket.SOCK_DGRAM)
            try:
                connected.connect((address, port))
            except BaseException:
                connected.close()
                raise
        return DatagramLine(connected)

    async def open(self, address: str, port: int, protocol: str) -> Line:
        """By ``tcp`` or ``udp``.  Raises GuestError."""
        return await (self.udp if protocol == "udp" else self.tcp)(address, port)

    async def _connected(self, address: str, port: int) -> socket.socket:
        """Raises GuestError and OSError."""
        return await self._reach(address).connect(address, port)

    def _reach(self, address: str) -> Network:
        if self._network is None:
            raise GuestError(
                "the machine is behind QEMU's user network, where nothing reaches it; "
                "corral status says why this host has no other"
            )
        if not address:
            raise GuestError("the machine has no address yet")
        return self._network


class _Elsewhere(Ports):
    """Opens ports of hosts that a tenant names, where the administrator has nothing against it.

    The node's own connections pass the policies of pods, so other pods and Services are not asked.
    """

    async def _connected(self, address: str, port: int) -> socket.socket:
        network = self._reach(address)
        try:
            found = await apart(self._destinations.addresses, address, port)
        except Refused as error:
            raise GuestError(str(error)) from error
        for each in found[:-1]:
            with suppress(OSError):
                return await network.connect(each, port)
        return await network.connect(found[-1], port)


@contextmanager
def _told(protocol: str, address: str, port: int) -> Iterator[None]:
    """What goes wrong is a GuestError."""
    try:
        yield
    except (OSError, OverflowError, ValueError) as error:
        raise GuestError(_failed(protocol, address, port, error)) from error


def _failed(protocol: str, address: str, port: int, error: Exception) -> str:
    """What is no port or no name at all raises OverflowError or ValueError."""
    host = f"[{address}]" if ":" in address else address
    if isinstance(error, TimeoutError):
        return f"dial {protocol} {host}:{port}: i/o timeout"
    if isinstance(error, socket.gaierror):  # its numbers are not those of other errors
        unknown = error.errno in (socket.EAI_NONAME, socket.EAI_NODATA)
        why = "no such host" if unknown else (error.strerror or "").lower()
        return f"dial {protocol}: lookup {address}: {why}"
    number = error.errno if isinstance(error, OSError) else None
    reason = (os.strerror(number) if number else str(error)).lower()
    return f"dial {protocol} {host}:{port}: connect: {reason}"
