"""Connections from the host's own network."""

import asyncio
import socket

import pytest

from corral.node.network.connections import HostConnections


async def test_a_port_is_reached():
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        await HostConnections().connect(*server.getsockname()) as connected,
        server.accept()[0] as accepted,
    ):
        accepted.sendall(b"hello")
        assert await asyncio.get_running_loop().sock_recv(connected, 5) == b"hello"


async def test_a_closed_port_is_an_error():
    with socket.create_server(("127.0.0.1", 0)) as closed:
        address = closed.getsockname()
    with pytest.raises(ConnectionRefusedError):
        await HostConnections().connect(*address)
