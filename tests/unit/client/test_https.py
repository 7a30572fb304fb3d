import ssl
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import trustme
from lightkube.models.core_v1 import ConfigMap, Namespace

from corral.api.errors import NotFound, Unauthorized, Unavailable
from corral.api.object import Key
from corral.client.client import Client
from corral.client.decoding import Bookmark
from corral.client.https import Https
from corral.client.kubeconfig import TOKEN_SECONDS, Kubeconfig, TokenFile
from corral.server.app import ApiServer
from corral.server.asgi import App
from corral.server.authn.authenticator import ADMINISTRATOR, Authenticator
from corral.server.transport import date_header
from corral.server.transport.listener import listening
from corral.store import Store

AUTHORITY = trustme.CA()
ESTABLISHED, KEEPALIVE = "01", "02"
"""A state and a timer of a connection, as proc(5) writes them."""


@asynccontextmanager
async def serving(not_after=None):
    store = Store.in_memory()
    server = ApiServer(store, authenticator=Authenticator({"secret": ADMINISTRATOR}))
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    AUTHORITY.issue_cert("127.0.0.1", not_after=not_after).configure_cert(tls)
    async with listening(App(server), "127.0.0.1", 0, tls) as (_, port):
        yield port
    await store.close()


def kubeconfig(port, *, token="secret", authority=None):
    return Kubeconfig(
        server=f"https://127.0.0.1:{port}",
        token=token,
        authority=authority or AUTHORITY.cert_pem.bytes().decode(),
    )


async def test_requests_over_https():
    async with serving() as port, Https(kubeconfig(port)) as transport:
        client = Client(transport)
        await client.create(Namespace, {"metadata": {"name": "default"}})
        since = (await client.list(ConfigMap)).resource_version
        await client.create(ConfigMap, {"metadata": {"name": "a", "namespace": "default"}})
        await client.patch(ConfigMap, Key("default", "a"), {"data": {"x": "y"}})
        seen = [
            (event.type, event.object.data)
            async for event in client.watch(ConfigMap, resource_version=since, timeout_seconds=1)
            if not isinstance(event, Bookmark)
        ]
        assert seen == [("ADDED", None), ("MODIFIED", {"x": "y"})]
        with pytest.raises(NotFound):
            await client.get(ConfigMap, "b", "default")
        with pytest.raises(NotFound, match=r"a\?x=#y"):
            await client.get(ConfigMap, "a?x=#y", "default")


async def test_a_silent_server_is_probed():
    """Otherwise a watch of a server that has lost its power would wait for ten minutes."""
    async with serving() as port, Https(kubeconfig(port)) as transport:
        await Client(transport).list(ConfigMap)
        lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
        (timer,) = [
            line[5] for line in lines if line[2].endswith(f":{port:04X}") and line[3] == ESTABLISHED
        ]
        assert timer.startswith(f"{KEEPALIVE}:")


async def test_unauthenticated_requests_are_unauthorized():
    async with serving() as port, Https(kubeconfig(port, token="wrong")) as transport:
        with pytest.raises(Unauthorized):
            await Client(transport).list(ConfigMap)


async def test_requests_have_the_current_token_of_the_file(tmp_path):
    path, now = tmp_path / "token", [0.0]
    path.write_text("secret")
    async with serving() as port:
        config = replace(kubeconfig(port), token_file=TokenFile(path, "old", now=lambda: now[0]))
        async with Https(config) as transport:
            with pytest.raises(Unauthorized):
                await Client(transport).list(ConfigMap)
            now[0] = TOKEN_SECONDS
            await Client(transport).list(ConfigMap)


async def test_the_clock_of_the_server_is_followed(monkeypatch):
    written = date_header._of
    async with serving() as port, Https(kubeconfig(port)) as transport:
        await Client(transport).list(ConfigMap)
        assert transport.clock.offset == 0
        monkeypatch.setattr(date_header, "_of", lambda second: written(second + 600))
        await Client(transport).list(ConfigMap)
        assert transport.clock.offset == pytest.approx(600, abs=1)


async def test_a_certificate_out_of_its_time_raises_a_doubt_about_the_clock():
    past = datetime.now(UTC) - timedelta(minutes=1)
    async with (
        serving(not_after=past) as port,
        Https(kubeconfig(port)) as transport,
    ):
        with pytest.raises(Unavailable, match=r"is the clock of this host right\? It says 20"):
            await Client(transport).list(ConfigMap)


async def test_an_untrusted_server_is_an_error():
    stranger = trustme.CA().cert_pem.bytes().decode()
    async with serving() as port, Https(kubeconfig(port, authority=stranger)) as transport:
        with pytest.raises(Unavailable, match=f"https://127.0.0.1:{port}") as error:
            await Client(transport).list(ConfigMap)
    assert "clock" not in str(error.value)


async def test_an_unreachable_server_is_an_error():
    async with serving() as port:
        pass
    async with Https(kubeconfig(port)) as transport:
        with pytest.raises(Unavailable, match="does not answer"):
            await Client(transport).list(ConfigMap)
