"""Tests of the way to a server behind this one: requests, streams and websockets over TLS."""

import ssl
from contextlib import asynccontextmanager

import pytest
import trustme
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse, StreamingResponse
from starlette.routing import Route, WebSocketRoute
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from corral.client.reverse_proxy import ReverseProxy, _Lenient
from corral.server.transport.listener import listening

AUTHORITY = trustme.CA()
PORT_FORWARD = "SPDY/3.1+portforward.k8s.io"


async def described(request):
    names = sorted({"authorization", "cookie", "x-user"} & set(request.headers))
    body = (await request.body()).decode()
    return PlainTextResponse(f"{request.method} {request.url.query} {names} {body}", 202)


async def streamed(_request):
    async def chunks():
        yield b"one"
        yield b"two"

    return StreamingResponse(chunks())


async def echo(websocket):
    await websocket.accept(subprotocol=websocket.scope["subprotocols"][0])
    await websocket.send_bytes(await websocket.receive_bytes())
    await websocket.close(4001, "enough")


async def denied(websocket):
    await websocket.send_denial_response(PlainTextResponse("not here", 404))


BEHIND = Starlette(
    routes=[
        Route("/described", described, methods=["GET", "POST"]),
        Route("/streamed", streamed),
        WebSocketRoute("/echo", echo),
        WebSocketRoute("/denied", denied),
    ]
)


def trusting():
    tls = ssl.create_default_context()
    AUTHORITY.configure_trust(tls)
    return tls


def serving(app):
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    AUTHORITY.issue_cert("127.0.0.1").configure_cert(tls)
    return listening(app, "127.0.0.1", 0, tls)


@asynccontextmanager
async def proxied():
    """The port of a server that passes all on to another one."""
    async with serving(BEHIND) as (host, port):
        proxy = ReverseProxy(host, port, trusting(), what="the other server")
        async with serving(proxy) as (_, front):
            yield front
        await proxy.aclose()


def dial(port, path, *subprotocols):
    return connect(
        f"wss://127.0.0.1:{port}{path}",
        ssl=trusting(),
        additional_headers=[("Sec-WebSocket-Protocol", each) for each in subprotocols],
        create_connection=_Lenient,
        proxy=None,
    )


@pytest.mark.parametrize("protocol", ["v5.channel.k8s.io", PORT_FORWARD])
async def test_a_websocket_is_proxied_with_subprotocol_and_close(protocol):
    async with proxied() as port, dial(port, "/echo", protocol) as connection:
        assert connection.subprotocol == protocol
        await connection.send(b"hello")
        assert await connection.recv() == b"hello"
        await connection.wait_closed()
        assert (connection.close_code, connection.close_reason) == (4001, "enough")


async def test_a_rejected_websocket_is_proxied():
    async with proxied() as port:
        with pytest.raises(InvalidStatus) as refused:
            await dial(port, "/denied", PORT_FORWARD)
    assert refused.value.response.status_code == 404
    assert refused.value.response.body == b"not here"
