"""The errors of web servers that cannot be reached."""

import socket
import ssl

import pytest
import trustme

from corral.api.errors import Unavailable
from corral.client.https import WebServer
from corral.server.app import ApiServer
from corral.server.asgi import App
from corral.server.transport.listener import listening
from corral.store import Store


async def post(port, authority):
    server = WebServer(
        f"https://127.0.0.1:{port}",
        description="it",
        authorities=authority.cert_pem.bytes().decode(),
    )
    try:
        await server.post("/", b"", content_type="text/plain", seconds=60, max_bytes=1000)
    finally:
        await server.aclose()


async def test_a_server_of_another_ca_is_not_trusted():
    store, authority = Store.in_memory(), trustme.CA()
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(tls)
    async with listening(App(ApiServer(store)), "127.0.0.1", 0, tls) as (_, port):
        with pytest.raises(Unavailable, match=r"^it at \S+ is not trusted: "):
            await post(port, trustme.CA())
        await post(port, authority)
    await store.close()


async def test_an_unreachable_server_is_unavailable():
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))  # and nobody listens
        with pytest.raises(Unavailable, match=r"does not answer: connection refused$"):
            await post(bound.getsockname()[1], trustme.CA())
