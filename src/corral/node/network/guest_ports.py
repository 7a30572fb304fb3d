"""Connections to ports of machines, over the pod network.

``corral.node.network`` implements it; without a pod network machines are behind QEMU's user
network, where no connection reaches them.
"""

import asyncio
import os
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Protocol

from corral.aio import own_thread
from corral.node.host.destinations import FOR_TENANTS, Destinations, Refused
from corral.node.hypervisor import GuestError
from corral.node.streams import DatagramLine, Line, SecureLine, StreamLine

CONNECT_SECONDS = 10.0


class Network(Protocol):
    """The part of the machine network that connections need."""

    async def connect(self, address: str, port: int) -> socket.socket:
        """Return a connected, non-blocking TCP socket.  Raises OSError."""

    async def socket(self, family: int, kind: int) -> socket.socket:
        """Return a non-blocking socket in the namespace of the network.  Raises OSError."""


class Ports:
    """Opens connections to ports of machines."""

    def __init__(self, network: Network | None, destinations: Destinations = FOR_TENANTS) -> None:
        """Accept for ``external`` only hosts that ``destinations`` allows."""
        self._network = network
        self._destinations = destinations

    def external(self) -> "Ports":
        """Return a variant for any host that a tenant names, by address or DNS name."""
        return _ExternalPorts(self._network, self._destinations)

    async def tcp(self, address: str, port: int) -> StreamLine:
        """Open a TCP connection.

        Raises GuestError, with Go's text for a failed dial, as KubeVirt has it.
        """
        with _dial_errors("tcp", address, port):
            async with asyncio.timeout(CONNECT_SECONDS):
                return StreamLine(await self._connect(address, port))

    async def tls(self, address: str, port: int, tls: ssl.SSLContext) -> SecureLine:
        """Open a TCP connection with TLS.  Raises GuestError."""
        with _dial_errors("tcp", address, port):
            async with asyncio.timeout(CONNECT_SECONDS):
                connected = await self._connect(address, port)
                return await SecureLine.over(connected, tls)

    async def udp(self, address: str, port: int) -> DatagramLine:
        """Open a UDP socket that is connected to a port.  Raises GuestError."""
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        with _dial_errors("udp", address, port):
            connected = await self._require_network(address).socket(family, socket.SOCK_DGRAM)
            try:
                connected.connect((address, port))
            except BaseException:
                connected.close()
                raise
        return DatagramLine(connected)

    async def open(self, address: str, port: int, protocol: str) -> Line:
        """Open a connection by ``tcp`` or ``udp``.  Raises GuestError."""
        return await (self.udp if protocol == "udp" else self.tcp)(address, port)

    async def _connect(self, address: str, port: int) -> socket.socket:
        """Raises GuestError and OSError."""
        return await self._require_network(address).connect(address, port)

    def _require_network(self, address: str) -> Network:
        if self._network is None:
            raise GuestError(
                "the machine is behind QEMU's user network, where nothing reaches it; "
                "corral status says why this host has no other"
            )
        if not address:
            raise GuestError("the machine has no address yet")
        return self._network


class _ExternalPorts(Ports):
    """Opens connections to hosts that a tenant names, where ``destinations`` allows it.

    The node's own connections bypass NetworkPolicies, so other pods and Services are refused.
    """

    async def _connect(self, address: str, port: int) -> socket.socket:
        network = self._require_network(address)
        try:
            addresses = await own_thread(self._destinations.addresses, address, port)
        except Refused as error:
            raise GuestError(str(error)) from error
        for each in addresses[:-1]:
            with suppress(OSError):
                return await network.connect(each, port)
        return await network.connect(addresses[-1], port)


@contextmanager
def _dial_errors(protocol: str, address: str, port: int) -> Iterator[None]:
    """Raise errors as GuestError."""
    try:
        yield
    except (OSError, OverflowError, ValueError) as error:
        raise GuestError(_dial_error(protocol, address, port, error)) from error


def _dial_error(protocol: str, address: str, port: int, error: Exception) -> str:
    """Return Go's text for a failed dial.

    Invalid ports and names raise OverflowError or ValueError.
    """
    host = f"[{address}]" if ":" in address else address
    if isinstance(error, TimeoutError):
        return f"dial {protocol} {host}:{port}: i/o timeout"
    if isinstance(error, socket.gaierror):  # its numbers are not errno's
        is_unknown = error.errno in (socket.EAI_NONAME, socket.EAI_NODATA)
        reason = "no such host" if is_unknown else (error.strerror or "").lower()
        return f"dial {protocol}: lookup {address}: {reason}"
    number = error.errno if isinstance(error, OSError) else None
    reason = (os.strerror(number) if number else str(error)).lower()
    return f"dial {protocol} {host}:{port}: connect: {reason}"
