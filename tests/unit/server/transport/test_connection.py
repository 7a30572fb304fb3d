"""Websockets of clients that are slow, or gone."""

import asyncio
import logging
import socket
import ssl
from contextlib import asynccontextmanager, suppress
from functools import partial

import pytest
from starlette.responses import PlainTextResponse
from starlette.websockets import WebSocket

from corral import pki
from corral.server.transport import connection as serving, listener
from corral.server.transport.listener import listening, tls_context

PING, BINARY, CLOSE = 0x89, 0x82, 0x88
UPGRADE = "\r\n".join(
    ["GET /{} HTTP/1.1", "host: x", "connection: Upgrade", "upgrade: websocket",
     "sec-websocket-version: 13", "sec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==", "", ""]
)  # fmt: skip
MUCH = 3_000_000


async def app(scope, receive, send):
    """Refuses, says much and leaves, or echoes."""
    door = WebSocket(scope, receive, send)
    if scope["path"] == "/refused":
        await door.send_denial_response(PlainTextResponse("no", status_code=409))
        return
    await door.accept()
    if scope["path"] == "/cut":
        await door.send_bytes(b"all")
        await door.close(1006)
        return
    if scope["path"] == "/much":
        for _ in range(30):
            await door.send_bytes(bytes(MUCH // 30))
        await door.close()
        return
    async for message in door.iter_bytes():
        await door.send_bytes(message)


@pytest.fixture
def impatient(monkeypatch):
    """Pings go out often, and uvicorn would wait for no answer for long."""
    config = partial(listener.Config, ws_ping_interval=0.01, ws_ping_timeout=0.01)
    monkeypatch.setattr(listener, "Config", config)


@pytest.fixture
async def opened(tmp_path):
    """Opens a websocket; answers its connection and the head of the answer."""
    identity = pki.ensure(tmp_path / "pki")
    trust = ssl.create_default_context(cafile=identity.authority)

    @asynccontextmanager
    async def opened(path):
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trust)
        writer.write(UPGRADE.format(path).encode())
        try:
            yield reader, writer, await reader.readuntil(b"\r\n\r\n")
        finally:
            writer.close()

    tls = tls_context(identity.certificate, identity.key)
    async with listening(app, "127.0.0.1", 0, tls) as (_, port):
        yield opened


async def frame(reader):
    kind, length = await reader.readexactly(2)
    if length == 126:
        length = int.from_bytes(await reader.readexactly(2))
    elif length == 127:
        length = int.from_bytes(await reader.readexactly(8))
    return kind, await reader.readexactly(length)


def masked(kind, content):
    return bytes([kind, 0x80 | len(content), 0, 0, 0, 0]) + content


async def test_a_client_may_leave_pings_unanswered(impatient, opened):
    """As one must whose answer waits behind what nobody has read yet."""
    async with asyncio.timeout(60), opened("echo") as (reader, writer, _):
        for _ in range(50):
            assert (await frame(reader))[0] == PING
        writer.write(masked(BINARY, b"still here"))
        while (received := await frame(reader))[0] == PING:
            pass
        assert received == (BINARY, b"still here")


async def test_a_client_reads_all_data_before_the_close(opened):
    async with asyncio.timeout(60), opened("much") as (reader, writer, _):
        found = 0
        while (received := await frame(reader))[0] != CLOSE:
            found += len(received[1])
        assert found == MUCH
        writer.write(masked(CLOSE, received[1]))
        assert await reader.read() == b""


async def test_an_abnormal_closure_has_no_close_frame(opened):
    async with asyncio.timeout(60), opened("cut") as (reader, _, _):
        assert await frame(reader) == (BINARY, b"all")
        assert await reader.read() == b""


async def test_a_client_that_does_not_answer_the_close_is_disconnected(opened, monkeypatch):
    monkeypatch.setattr(serving, "CLOSE_STALL_SECONDS", 0.05)
    async with asyncio.timeout(60), opened("much") as (reader, _, _):
        assert len(await reader.read()) > MUCH


async def test_pings_do_not_delay_the_end_after_a_close(opened, monkeypatch):
    monkeypatch.setattr(serving, "CLOSE_STALL_SECONDS", 0.2)
    async with asyncio.timeout(60), opened("much") as (reader, writer, _):
        while (await frame(reader))[0] != CLOSE:
            pass
        rest = asyncio.ensure_future(reader.read())
        while not rest.done():
            with suppress(ConnectionError):
                writer.write(masked(PING, b"here"))
                await writer.drain()
            await asyncio.sleep(0.01)
        await asyncio.gather(rest, return_exceptions=True)


async def test_the_close_has_a_limit_even_with_progress(opened, monkeypatch):
    monkeypatch.setattr(serving, "CLOSE_STALL_SECONDS", 3600)
    monkeypatch.setattr(serving, "MAX_CLOSE_SECONDS", 0.05)
    async with asyncio.timeout(60), opened("much") as (reader, _, _):
        with suppress(ConnectionError):
            await reader.read()


async def talk(writer):
    while True:
        writer.write(masked(BINARY, bytes(100)) * 1000)
        await writer.drain()


async def test_a_client_that_does_not_read_is_aborted(opened, monkeypatch):
    monkeypatch.setattr("corral.server.transport.slow_reader.UNREAD_SECONDS", 0.05)
    async with asyncio.timeout(60), opened("echo") as (reader, writer, _):
        writer.transport.pause_reading()
        with pytest.raises(ConnectionError):
            await talk(writer)
        assert not reader.at_eof()


async def test_a_rejected_handshake_is_not_logged_as_an_error(opened, caplog):
    with caplog.at_level(logging.INFO, "uvicorn.error"):
        async with asyncio.timeout(60), opened("refused") as (reader, _, head):
            assert b" 409 " in head
            assert await reader.read() == b"no"
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


async def test_a_dead_client_is_detected(opened, monkeypatch):
    watched = []

    def detect_dead_peer(transport):
        before(transport)
        watched.append(transport.get_extra_info("socket"))

    before = serving.detect_dead_peer
    monkeypatch.setattr(serving, "detect_dead_peer", detect_dead_peer)
    async with opened("echo"):
        (connected,) = watched
        assert connected.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert connected.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 60_000


async def test_the_server_can_shut_down_during_a_close(tmp_path):
    identity = pki.ensure(tmp_path / "pki")
    left = asyncio.Event()

    async def hear(scope, receive, send):
        await app(scope, receive, send)
        left.set()

    tls = tls_context(identity.certificate, identity.key)
    async with asyncio.timeout(60):
        async with listening(hear, "127.0.0.1", 0, tls) as (_, port):
            trust = ssl.create_default_context(cafile=identity.authority)
            reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trust)
            writer.write(UPGRADE.format("echo").encode())
            await reader.readuntil(b"\r\n\r\n")
            writer.transport.pause_reading()  # so that TLS is not closed
            writer.write(masked(CLOSE, b""))
            await left.wait()
        writer.close()
