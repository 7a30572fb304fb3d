"""By which way a registry is reached: at an address that was judged, or by a proxy."""

import socket
import ssl
from contextlib import ExitStack

import httpx2
import pytest

from corral.node.host import destinations
from corral.node.host.destinations import ANYWHERE, FOR_TENANTS, Refused
from corral.node.images import transport
from corral.node.images.transport import Transport

PROXIES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch):
    for name in PROXIES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


async def get(url, *, destinations=FOR_TENANTS, proxies=True, seconds=5.0):
    way = Transport(ssl.create_default_context(), destinations, proxies=proxies)
    async with httpx2.AsyncClient(transport=way, trust_env=False, timeout=seconds) as client:
        return await client.get(url)


async def test_connections_to_loopback_are_rejected(registry):
    for host in ("127.0.0.1", "localhost", "127.1", "[::ffff:127.0.0.1]"):
        with pytest.raises(Refused, match="loopback"):
            await get(f"http://{host}:{registry.port}/v2/")
    assert registry.requests == []


async def test_connections_to_allowed_addresses(registry):
    answer = await get(f"http://localhost:{registry.port}/v2/nothing", destinations=ANYWHERE)
    assert answer.status_code == 404
    assert registry.requests


@pytest.fixture
def silent(registry):
    """An address that answers to no connection at the registry's port."""
    with ExitStack() as stack:
        deaf = stack.enter_context(socket.socket())
        deaf.bind(("127.0.0.2", registry.port))
        deaf.listen(0)
        for _ in range(3):  # more than may wait
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(deaf.getsockname())
        yield "127.0.0.2"


async def test_the_next_address_is_tried_if_one_is_silent(registry, silent, monkeypatch):
    monkeypatch.setattr(transport, "_FALLBACK_SECONDS", 0.2)
    monkeypatch.setattr(destinations, "_resolve", lambda *_: [silent, "127.0.0.1"])
    answer = await get(f"http://both.example:{registry.port}/v2/nothing", destinations=ANYWHERE)
    assert answer.status_code == 404
    monkeypatch.setattr(destinations, "_resolve", lambda *_: [silent])
    with pytest.raises(httpx2.ConnectTimeout):
        await get(f"http://one.example:{registry.port}/", destinations=ANYWHERE, seconds=0.2)


async def test_a_proxy_of_the_environment_is_used(registry, monkeypatch):
    monkeypatch.setenv("http_proxy", f"http://{registry.address}")
    answer = await get("http://registry.example/v2/nothing")
    assert answer.status_code == 404
    assert registry.count("registry.example") == 1

    def unknown(*_arguments, **_options):
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    with pytest.raises(httpx2.ConnectError):
        await get("http://registry.invalid/v2/", proxies=False)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "169.254.169.254", "0x7f.1"])
async def test_a_proxy_is_not_used_for_forbidden_addresses(registry, monkeypatch, host):
    monkeypatch.setenv("all_proxy", registry.address)
    with pytest.raises(Refused):
        await get(f"http://{host}/")
    assert registry.requests == []


async def test_addresses_excluded_from_the_proxy_are_checked(registry, monkeypatch):
    monkeypatch.setenv("http_proxy", f"http://{registry.address}")
    monkeypatch.setenv("no_proxy", "localhost")
    with pytest.raises(Refused):
        await get(f"http://localhost:{registry.port}/")
    assert registry.requests == []


async def test_an_invalid_host_name_is_a_connection_error():
    with pytest.raises(httpx2.ConnectError):
        await get(f"http://{'a' * 64}.example/")
