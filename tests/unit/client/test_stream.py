"""A stream's ends: what was sent before them arrives, however slow the other side is."""

import asyncio
import random
import socket
import ssl
from contextlib import asynccontextmanager
from functools import partial

import pytest
from starlette.websockets import WebSocket

from corral import pki
from corral.api.errors import ApiError, Conflict, Unavailable
from corral.client import stream as streams
from corral.client.stream import Stream, StreamLost
from corral.server.transport.listener import listening_on, tls_context

MUCH = random.Random(1).randbytes(4 << 20)
PIECE = 10_000


class Server:
    """Takes what it is sent once it may, or says much and leaves."""

    def __init__(self):
        self.may_read = asyncio.Event()
        self.may_read.set()
        self.found = b""
        self.left = asyncio.Event()

    async def __call__(self, scope, receive, send):
        door = WebSocket(scope, receive, send)
        await door.accept(subprotocol="plain.kubevirt.io")
        if scope["path"] == "/says":
            for at in range(0, len(MUCH), PIECE):
                await door.send_bytes(MUCH[at : at + PIECE])
            await door.close()
        elif scope["path"] == "/lost":
            raise ValueError("the server has a fault")
        else:
            await self.may_read.wait()
            async for message in door.iter_bytes():
                self.found += message
            self.left.set()


@pytest.fixture
def server():
    return Server()


@pytest.fixture
async def opened(server, tmp_path):
    identity = pki.ensure(tmp_path / "pki")
    trust = ssl.create_default_context(cafile=identity.authority)
    tls = tls_context(identity.certificate, identity.key)
    bound = socket.socket()
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 * PIECE)  # little waits in the kernel
    bound.bind(("127.0.0.1", 0))
    where = f"wss://127.0.0.1:{bound.getsockname()[1]}"
    async with listening_on(server, bound, tls):
        yield lambda path: Stream.open(f"{where}/{path}", headers={}, tls=trust, seconds=60)


async def test_received_data_is_available_after_the_end(opened, server, monkeypatch):
    monkeypatch.setattr(streams, "CLOSE_SECONDS", 0.1)
    server.may_read.clear()
    sent = b""
    async with asyncio.timeout(60):
        async with opened("takes") as stream:
            transport = stream._connection.transport
            while not transport.get_write_buffer_size():  # what the kernel holds goes out anyhow
                sent += MUCH[:PIECE]
                await stream.send(MUCH[:PIECE])
            asyncio.get_running_loop().call_later(0.5, server.may_read.set)
            await stream.delivered()
        await server.left.wait()
    assert server.found == sent


async def test_all_data_before_the_end_is_read(opened):
    found = b""
    async with asyncio.timeout(60), opened("says") as stream:
        async for piece in stream:
            found += piece
            await asyncio.sleep(0.001)
        await stream.delivered()  # goes nowhere, as what is sent then
    assert found == MUCH


async def test_data_unread_by_a_lost_server_is_not_delivered(opened):
    async with asyncio.timeout(60), opened("lost") as stream:
        with pytest.raises(StreamLost):
            await stream.delivered()


async def test_a_server_that_is_busy_need_not_answer_pings(opened, server, monkeypatch):
    """It does so when it has read what stands before them."""
    impatient = partial(streams._connector(), ping_interval=0.05, ping_timeout=0.05)
    monkeypatch.setattr(streams, "_connector", lambda: impatient)
    server.may_read.clear()
    async with asyncio.timeout(60):
        async with opened("takes") as stream:
            await stream.send(MUCH[:PIECE])
            await asyncio.sleep(1)
            server.may_read.set()
            await stream.delivered()
        await server.left.wait()
    assert server.found == MUCH[:PIECE]


async def test_a_dead_server_is_detected(opened):
    async with opened("takes") as stream:
        connected = stream._connection.transport.get_extra_info("socket")
        assert connected.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert connected.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 300_000


@pytest.fixture
def answering(tmp_path):
    """Serve one response to every request: its port, TLS that trusts it, and the requests."""
    identity = pki.ensure(tmp_path / "pki")
    trust = ssl.create_default_context(cafile=identity.authority)

    @asynccontextmanager
    async def serve(head, body=b""):
        requests = []

        async def answer(reader, writer):
            requests.append(await reader.readuntil(b"\r\n\r\n"))
            length = b"\r\nContent-Length: %d\r\n\r\n" % len(body)
            writer.write(b"HTTP/1.1 " + head + length + body)
            writer.close()

        tls = tls_context(identity.certificate, identity.key)
        server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=tls)
        async with server:
            yield server.sockets[0].getsockname()[1], trust, requests

    return serve


async def refusal(port, trust):
    with pytest.raises(ApiError) as refused:
        async with Stream.open(f"wss://127.0.0.1:{port}/", headers={}, tls=trust):
            pass
    return refused.value


async def test_a_redirect_is_not_followed(answering):
    """It would show the client's certificate to whoever the server names."""
    async with (
        answering(b"404 Not Found") as (elsewhere, _, requests),
        answering(
            b"301 Moved Permanently\r\nLocation: wss://127.0.0.1:%d/portforward" % elsewhere
        ) as (port, trust, _),
    ):
        assert (await refusal(port, trust)).message == "the server answered 301"
    assert requests == []


async def test_a_redirect_to_no_websocket_is_an_answer(answering):
    async with answering(b"302 Found\r\nLocation: http://x/") as (port, trust, _):
        assert (await refusal(port, trust)).message == "the server answered 302"


@pytest.mark.parametrize(
    "body",
    [
        b'{"details":[1]}',
        b'{"code":[1]}',
        b'{"message":5}',
        b'{"details":{"causes":[1]}}',
        b'{"reason":{}}',
        b'{"details":' + b"[" * 20_000 + b"]" * 20_000 + b"}",
        b"\xff",
        b"",
    ],
)
async def test_a_refusal_without_a_status_is_the_error(answering, body):
    async with answering(b"403 Forbidden", body) as (port, trust, _):
        error = await refusal(port, trust)
    assert error.code == 403
    assert error.message


async def test_a_refusal_with_a_status_is_its_error(answering):
    body = b'{"code":409,"reason":"Conflict","message":"no","details":{"name":"x","causes":null}}'
    async with answering(b"409 Conflict", body) as (port, trust, _):
        error = await refusal(port, trust)
    assert isinstance(error, Conflict)
    assert (error.message, error.details.name) == ("no", "x")


@pytest.mark.parametrize("head", [b"99999", b"101 X\r\nUpgrade: \xff"])
async def test_a_server_that_speaks_no_websocket_is_unavailable(answering, head):
    async with answering(head) as (port, trust, _):
        error = await refusal(port, trust)
    assert isinstance(error, Unavailable)
