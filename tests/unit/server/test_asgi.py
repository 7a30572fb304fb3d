"""Tests of the server behind real sockets: TLS, keep-alive, streams, websockets, bad clients."""

import asyncio
import base64
import gc
import gzip
import json
import ssl
import weakref
from asyncio.sslproto import SSLProtocol
from contextlib import AsyncExitStack, asynccontextmanager, suppress

import pytest
import websockets
from structlog.testing import capture_logs
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from corral import pki
from corral.api.object import Key
from corral.api.request import Response, User
from corral.server import asgi
from corral.server.app import ApiServer
from corral.server.asgi import App
from corral.server.authn.authenticator import ADMINISTRATOR, Authenticator
from corral.server.flowcontrol import fairness
from corral.server.node_proxy.forwarding import Forward
from corral.server.registry.watch_backlog import BUFFERED_BYTES, Backlog
from corral.server.transport import connection as serving
from corral.server.transport.connection import MAX_BUFFERED_BYTES, CoalescingTransport
from corral.server.transport.listener import ServeError, listening, tls_context
from corral.server.transport.spdy_upgrade import Tunnel
from corral.store import Store

SPACES = "/api/v1/namespaces"
MAPS = "/api/v1/namespaces/default/configmaps"
PODS = "/api/v1/namespaces/default/pods"
MACHINES = "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstances"
CONSOLE = "/apis/subresources.kubevirt.io/v1/namespaces/default/virtualmachineinstances/{}/console"
NODE_READS = asyncio.Event()


async def agent(scope, receive, send):
    """A node's agent that answers with the request."""
    assert not any(name == b"authorization" for name, _ in scope["headers"])
    if scope["type"] == "http":
        await send({"type": "http.response.start", "status": 200, "headers": []})
        text = f"{scope['path']}?{scope['query_string'].decode()}"
        await send({"type": "http.response.body", "body": text.encode()})
        return
    await receive()
    await send({"type": "websocket.accept", "subprotocol": scope["subprotocols"][0]})
    await send({"type": "websocket.send", "bytes": scope["path"].encode()})
    while (message := await receive())["type"] == "websocket.receive":
        if message["bytes"] == b"fail":
            raise ValueError("the agent has a fault")
        if message["bytes"] == b"wait":
            await send({"type": "websocket.send", "bytes": b"..."})
            await NODE_READS.wait()
        if message["bytes"] == b"bye":
            await send({"type": "websocket.send", "bytes": bytes(1_000_000)})
            await send({"type": "websocket.close", "code": 1000})
            return
        await send({"type": "websocket.send", "bytes": message["bytes"].upper()})


class Connection:
    """One HTTP/1.1 connection, spoken by hand."""

    def __init__(self, reader, writer, token):
        self.reader, self.writer, self.token = reader, writer, token

    def send(self, method, path, body=b"", **headers):
        lines = [f"{method} {path} HTTP/1.1", "host: x", f"authorization: Bearer {self.token}"]
        if body:
            lines += [f"content-length: {len(body)}"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        self.writer.write("\r\n".join([*lines, "", ""]).encode() + body)

    async def head(self):
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode().splitlines()
        headers = dict(line.lower().split(": ", 1) for line in head[1:] if line)
        return int(head[0].split()[1]), headers

    async def ask(self, method, path, body=b"", **headers):
        self.send(method, path, body, **headers)
        status, found = await self.head()
        return status, await self.reader.readexactly(int(found["content-length"]))

    async def chunk(self):
        size = int(await self.reader.readline(), 16)
        data = await self.reader.readexactly(size)
        await self.reader.readline()
        return data

    async def line(self):
        """A line of a stream, however many chunks it comes in."""
        data = b""
        while not data.endswith(b"\n"):
            data += await self.chunk()
        return data


class Served:
    """A server that listens, and ways to it."""

    def __init__(self, server, identity, port):
        self.server, self.store = server, server.rest.store
        self.identity, self.port = identity, port
        self.trust = ssl.create_default_context(cafile=identity.authority)

    @asynccontextmanager
    async def connection(self):
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, ssl=self.trust)
        try:
            yield Connection(reader, writer, self.identity.token)
        finally:
            writer.close()

    def websocket(self, path, token=None):
        return connect(
            f"wss://127.0.0.1:{self.port}{path}",
            ssl=self.trust,
            additional_headers={"authorization": f"Bearer {token or self.identity.token}"},
            subprotocols=[websockets.Subprotocol("plain.kubevirt.io")],
            proxy=None,
            open_timeout=60,
        )


@asynccontextmanager
async def running(directory):
    identity = pki.ensure(directory)
    store = Store.in_memory()
    server = ApiServer(
        store,
        authenticator=Authenticator({identity.token: ADMINISTRATOR, "other": User(name="bob")}),
        nodes={"one": agent}.get,
    )
    tls = tls_context(identity.certificate, identity.key)
    async with listening(App(server), "127.0.0.1", 0, tls) as (_, port):
        served = Served(server, identity, port)
        async with served.connection() as connection:
            await connection.ask("POST", SPACES, b'{"metadata":{"name":"default"}}')
        yield served
        await store.close()


@pytest.fixture
async def served(tmp_path):
    async with running(tmp_path / "pki") as served:
        yield served


async def test_many_requests_go_over_one_connection(served):
    async with served.connection() as connection:
        for number in range(5):
            body = json.dumps({"metadata": {"name": f"m{number}"}}).encode()
            status, _ = await connection.ask("POST", MAPS, body)
            assert status == 201
        status, body = await connection.ask("GET", MAPS)
        assert len(json.loads(body)["items"]) == 5


async def test_responses_are_the_same_with_and_without_keep_alive(served):
    path = "/api/v1/namespaces/default"
    async with served.connection() as staying, served.connection() as leaving:
        staying.send("GET", path)
        leaving.send("GET", path, connection="close")
        status, headers = await staying.head()
        body = await staying.reader.readexactly(int(headers["content-length"]))
        assert status == 200
        assert await leaving.head() == (status, headers | {"connection": "close"})
        assert await leaving.reader.read() == body


async def test_a_wrong_token_is_unauthorized(served):
    async with served.connection() as connection:
        connection.token = "wrong"
        status, body = await connection.ask("GET", MAPS)
        assert status == 401
        assert json.loads(body)["reason"] == "Unauthorized"


async def test_a_watch_streams_and_ends_with_the_client(served):
    async with served.connection() as watcher, served.connection() as writer:
        watcher.send("GET", f"{MAPS}?watch=1&resourceVersion=1")
        status, headers = await watcher.head()
        assert (status, headers["transfer-encoding"]) == (200, "chunked")
        await writer.ask("POST", MAPS, b'{"metadata":{"name":"a"}}')
        frame = json.loads(await watcher.chunk())
        assert (frame["type"], frame["object"]["metadata"]["name"]) == ("ADDED", "a")
        assert served.store.watches == 1
        watcher.writer.close()
        await watcher.writer.wait_closed()
        async with asyncio.timeout(60):
            while served.store.watches:  # the server learns of it by the closed connection
                await writer.ask("GET", "/healthz")


async def test_changes_of_one_commit_are_one_chunk(served):
    async with served.connection() as watcher:
        initial = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan"
        watcher.send("GET", f"{MAPS}?watch=1&allowWatchBookmarks=true&{initial}")
        await watcher.head()
        assert b"initial-events-end" in await watcher.chunk()
        for name in "abc":
            document = {"metadata": {"name": name, "namespace": "default"}}
            served.store.write("configmaps", Key("default", name), document)
        assert len((await watcher.chunk()).splitlines()) == 3


async def test_a_large_list_is_sent_completely(served):
    async with served.connection() as connection:
        pad = "x" * 100_000
        for number in range(30):
            body = json.dumps({"metadata": {"name": f"m{number}"}, "data": {"pad": pad}})
            await connection.ask("POST", MAPS, body.encode())
        _, body = await connection.ask("GET", MAPS)
        assert len(body) > 3_000_000
        assert len(json.loads(body)["items"]) == 30


async def test_large_responses_are_compressed_if_accepted(served):
    async with served.connection() as connection:
        for number in range(20):
            document = {"metadata": {"name": f"m{number}"}, "data": {"pad": "x" * 100_000}}
            await connection.ask("POST", MAPS, json.dumps(document).encode())
        _, plain = await connection.ask("GET", MAPS)
        for accepted in ("gzip", "deflate, GZIP;q=0.5"):
            connection.send("GET", MAPS, accept_encoding=accepted)
            status, headers = await connection.head()
            assert (status, headers["content-encoding"]) == (200, "gzip")
            assert headers["vary"] == "accept-encoding"
            packed = b""
            while piece := await connection.chunk():
                packed += piece
            assert len(packed) < 100_000
            assert gzip.decompress(packed) == plain


@pytest.mark.parametrize("accepted", ["", "identity", "br", "gzip;q=0", "gzip; q=0.0"])
async def test_large_responses_are_not_compressed_if_not_accepted(served, accepted):
    async with served.connection() as connection:
        body = json.dumps({"metadata": {"name": "a"}, "data": {"pad": "x" * 200_000}})
        await connection.ask("POST", MAPS, body.encode())
        _, answer = await connection.ask("GET", MAPS, accept_encoding=accepted)
        assert len(json.loads(answer)["items"]) == 1


async def test_small_and_streamed_responses_are_not_compressed(served):
    async with served.connection() as connection:
        body = json.dumps({"metadata": {"name": "a"}, "data": {"pad": "x" * 200_000}})
        await connection.ask("POST", MAPS, body.encode(), accept_encoding="gzip")
        _, answer = await connection.ask("GET", SPACES, accept_encoding="gzip")
        assert json.loads(answer)["items"]
        connection.send("GET", f"{MAPS}?watch=1", accept_encoding="gzip")
        _, headers = await connection.head()
        assert "content-encoding" not in headers
        assert json.loads(await connection.line())["type"] == "ADDED"


async def test_a_compressed_request_body_is_rejected(served):
    """A small one may hold gigabytes, and no client of Kubernetes sends one."""
    async with served.connection() as connection:
        body = gzip.compress(b'{"metadata":{"name":"a"}}')
        status, answer = await connection.ask("POST", MAPS, body, content_encoding="gzip")
        assert (status, json.loads(answer)["reason"]) == (415, "UnsupportedMediaType")
        assert 'content encoding "gzip"' in json.loads(answer)["message"]
        plain = b'{"metadata":{"name":"a"}}'
        status, _ = await connection.ask("POST", MAPS, plain, content_encoding="identity")
        assert status == 201


async def test_a_too_large_body_is_rejected_before_it_is_read(served):
    async with served.connection() as connection:
        connection.send("POST", MAPS, content_length=str(4 << 20))
        status, headers = await connection.head()
        assert (status, headers["connection"]) == (413, "close")


@pytest.mark.parametrize(
    ("method", "path", "length", "body"),
    [
        ("DELETE", "/a", {"content_length": "80"}, b""),
        ("DELETE", "/a", {"content_length": "80"}, b"  "),
        ("DELETE", "/a", {"transfer_encoding": "chunked"}, b"2\r\n{}\r\n"),
        (
            "POST",
            "",
            {"content_length": "80", "content_type": "application/yaml"},
            b"metadata: {name: half}\n",
        ),
    ],
)
async def test_an_incomplete_request_is_not_executed(served, method, path, length, body):
    async with served.connection() as connection:
        assert (await connection.ask("POST", MAPS, b'{"metadata":{"name":"a"}}'))[0] == 201
        before = served.store.revision
        async with served.connection() as other:
            other.send(method, MAPS + path, **length)
            other.writer.write(body)
            await other.writer.drain()
            await connection.ask("GET", "/healthz")  # the head has come, too
        await other.writer.wait_closed()
        await connection.ask("POST", MAPS, b'{"metadata":{"name":"after"}}')
        _, listed = await connection.ask("GET", MAPS)
    names = [item["metadata"]["name"] for item in json.loads(listed)["items"]]
    assert names == ["a", "after"]
    assert served.store.revision == before + 1


@pytest.mark.parametrize(
    ("path", "token", "code"),
    [(MAPS, "wrong", 401), ("/api/v1/nonsense", None, 404), (MAPS, "other", 403)],
)
async def test_forbidden_requests_are_rejected_before_the_body_is_read(served, path, token, code):
    async with served.connection() as connection:
        connection.token = token or connection.token
        connection.send("POST", path, content_length="1000000")
        status, _ = await connection.head()
        assert status == code


async def test_chunked_bodies_are_limited(served):
    async with served.connection() as connection:
        connection.send("POST", MAPS, transfer_encoding="chunked")
        piece = b"100000\r\n" + b" " * (1 << 20) + b"\r\n"
        connection.writer.write(piece * 4)
        status, _ = await connection.head()
        assert status == 413


async def test_request_bodies_in_memory_are_limited_per_user(tmp_path, monkeypatch):
    monkeypatch.setattr(fairness, "BODIES", (300_000, 1 << 20))
    async with running(tmp_path / "pki") as served, AsyncExitStack() as stack:
        slow = [await stack.enter_async_context(served.connection()) for _ in range(3)]
        for each in slow:
            each.send("POST", MAPS, content_length="100000", expect="100-continue")
            assert (await each.head())[0] == 100
        async with served.connection() as connection:
            status, said = await connection.ask("POST", MAPS, bytes(100_000))
            assert (status, json.loads(said)["reason"]) == (429, "TooManyRequests")
        async with served.connection() as connection:
            small = b'{"metadata":{"name":"small"}}'
            assert (await connection.ask("POST", MAPS, small))[0] == 201
        for each in slow:
            each.writer.write(b" " * 100_000)
            assert (await each.head())[0] == 400
        async with served.connection() as connection:
            assert (await connection.ask("POST", MAPS, b" " * 100_000))[0] == 400


async def test_unread_responses_are_limited_per_user(tmp_path, monkeypatch):
    monkeypatch.setattr(fairness, "RESPONSES", (20 << 20, 100 << 20))
    async with running(tmp_path / "pki") as served, AsyncExitStack() as stack:
        async with served.connection() as connection:
            for number in range(15):
                text = "x" * 1_000_000
                made = {"metadata": {"name": f"m{number}"}, "data": {"a": text}}
                await connection.ask("POST", MAPS, json.dumps(made).encode())
        unread = [await stack.enter_async_context(served.connection()) for _ in range(2)]
        lengths = []
        for each in unread:
            each.send("GET", MAPS)
            status, headers = await each.head()
            assert status == 200
            lengths.append(int(headers["content-length"]))
        async with served.connection() as connection:
            connection.send("GET", MAPS)
            status, headers = await connection.head()
            assert (status, headers["retry-after"]) == (429, "1")
        for each, length in zip(unread, lengths, strict=True):
            await each.reader.readexactly(length)
        async with served.connection() as connection:
            assert (await connection.ask("GET", MAPS))[0] == 200


@pytest.mark.parametrize("length", [200_000, 4_000_000])
async def test_an_endless_head_is_rejected(served, length):
    """And its client reads why, although it goes on to send."""
    async with served.connection() as connection:
        connection.writer.write(b"GET / HTTP/1.1\r\nx: ")
        for _ in range(length // 2000):
            connection.writer.write(b"y" * 2000)
        await connection.writer.drain()
        status, headers = await connection.head()
        assert (status, headers["connection"]) == (431, "close")
        said = await connection.reader.readexactly(int(headers["content-length"]))
        assert said == b"431 Request Header Fields Too Large"
        async with asyncio.timeout(60):
            assert await connection.reader.read() == b""


@pytest.mark.parametrize("size", [60_000, 66_000, 120_000])
@pytest.mark.parametrize("slices", [1, 20])
async def test_a_large_head_in_one_piece_is_rejected(served, size, slices):
    """In whatever pieces it comes, and whatever stands behind it."""
    async with served.connection() as connection:
        head = f"POST {MAPS} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {connection.token}\r\n"
        body = b'{"metadata":{"generateName":"a"}}'
        head += f"content-length: {len(body)}\r\nx: {'y' * size}\r\n\r\n"
        sent = head.encode() + body
        step = -(-len(sent) // slices)
        for begin in range(0, len(sent), step):
            connection.writer.write(sent[begin : begin + step])
            await connection.writer.drain()
            await asyncio.sleep(0)
        assert (await connection.head())[0] == (201 if size < 64 << 10 else 431)
    assert served.store.count("configmaps") == (size < 64 << 10)


async def test_requests_before_an_endless_head_are_answered(served):
    """Whether it was answered before the bound was reached, or not yet."""
    async with served.connection() as connection:
        first = b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n"
        connection.writer.write(first + b"GET / HTTP/1.1\r\nx: " + b"y" * 200_000)
        status, headers = await connection.head()
        assert status == 200
        await connection.reader.readexactly(int(headers["content-length"]))
        async with asyncio.timeout(60):
            said = await connection.reader.read()
        assert said == b"" or said.startswith(b"HTTP/1.1 431 ")


async def test_a_rejection_before_100_continue_closes_the_connection(served):
    """A client that waits for leave need not send what it announced: the next would be eaten."""
    async with served.connection() as connection:
        connection.token = "wrong"
        connection.send("POST", MAPS, content_length="3", expect="100-continue")
        status, headers = await connection.head()
        assert (status, headers["connection"]) == (401, "close")


async def test_trailers_do_not_authenticate(served):
    async with served.connection() as connection:
        connection.writer.write(
            b"POST /api/v1/namespaces/default/configmaps HTTP/1.1\r\nhost: x\r\n"
            b"transfer-encoding: chunked\r\n\r\n0\r\n"
            + f"authorization: Bearer {connection.token}\r\n\r\n".encode()
        )
        assert (await connection.head())[0] == 401


async def test_trailers_are_limited(served):
    async with served.connection() as connection:
        connection.send("POST", MAPS, transfer_encoding="chunked")
        connection.writer.write(b"1\r\n{\r\n0\r\nx: ")
        with suppress(ConnectionError):
            for _ in range(1000):
                connection.writer.write(b"y" * 2000)
                await connection.writer.drain()
            async with asyncio.timeout(60):
                assert await connection.reader.read() == b""


async def test_a_body_may_come_in_many_small_chunks(served):
    body = json.dumps({"metadata": {"name": "m"}, "data": {"a": "x" * 50_000}}).encode()
    async with served.connection() as connection:
        connection.send("POST", MAPS, transfer_encoding="chunked")
        for byte in body:
            connection.writer.write(b"1\r\n%c\r\n" % byte)
        connection.writer.write(b"0\r\n\r\n")
        assert (await connection.head())[0] == 201


async def test_a_body_still_sent_after_the_response_has_a_timeout(tmp_path, monkeypatch):
    monkeypatch.setattr(serving, "KEEP_ALIVE_SECONDS", 0.2)
    async with running(tmp_path) as served, served.connection() as connection:
        connection.token = "wrong"
        connection.send("POST", MAPS, content_length="3")
        status, headers = await connection.head()
        assert status == 401
        await connection.reader.readexactly(int(headers["content-length"]))
        connection.writer.write(b"{} ")
        async with asyncio.timeout(60):
            assert await connection.reader.read() == b""


async def test_slow_requests_are_disconnected(tmp_path, monkeypatch):
    async with running(tmp_path) as served:
        monkeypatch.setattr(serving, "REQUEST_SECONDS", 0.05)
        async with asyncio.timeout(60), served.connection() as connection:
            connection.writer.write(b"GET / HTTP/1.1\r\nho")
            assert await connection.reader.read() == b""


async def reading(scope, receive, send):
    """An app that begins late, and answers with the size of the body."""
    if scope["path"] != "/hurried":
        scope["extensions"][serving.SLOW_BODY]()
    await asyncio.sleep(2 if scope["path"] == "/later" else 0)
    size = 0
    while (message := await receive())["type"] == "http.request":
        size += len(message["body"])
        if not message["more_body"]:
            break
    body = str(size).encode()
    headers = [(b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


@pytest.mark.parametrize(
    ("path", "pieces", "answer"),
    [
        ("/unhurried", 6, b"6000"),
        ("/hurried", 9, b""),
        ("/later", 1000, b"1000000"),  # more than is kept before it is read
    ],
)
async def test_a_slow_body_is_received_as_long_as_it_makes_progress(
    monkeypatch, path, pieces, answer
):
    monkeypatch.setattr(serving, "REQUEST_SECONDS", 1.5)
    async with listening(reading, "127.0.0.1", 0, None) as (_, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        length = f"host: x\r\ncontent-length: {1000 * pieces}\r\n"
        writer.write(f"POST {path} HTTP/1.1\r\n{length}connection: close\r\n\r\n".encode())
        said = b""
        with suppress(ConnectionError):
            for _ in range(pieces):
                writer.write(bytes(1000))
                await writer.drain()
                await asyncio.sleep(0.3 if pieces < 10 else 0)
            said = await reader.read()
        writer.close()
        assert said.rpartition(b"\r\n\r\n")[2] == answer


async def test_a_client_that_sends_only_line_ends_is_disconnected(tmp_path, monkeypatch):
    monkeypatch.setattr(serving, "KEEP_ALIVE_SECONDS", 0.3)
    async with running(tmp_path) as served, served.connection() as connection:
        await connection.ask("GET", "/healthz")
        async with asyncio.timeout(60):
            while not connection.reader.at_eof():
                connection.writer.write(b"\r\n")
                await asyncio.sleep(0.02)


async def test_a_client_that_does_not_read_is_disconnected(tmp_path, monkeypatch):
    monkeypatch.setattr("corral.server.transport.slow_reader.UNREAD_SECONDS", 0.05)
    async with running(tmp_path) as served, served.connection() as watcher:
        watcher.send("GET", f"{MAPS}?watch=1&resourceVersion=1")
        await watcher.head()
        watcher.writer.transport.pause_reading()
        data = {"metadata": {"namespace": "default"}, "data": {"pad": "x" * 1_000_000}}
        async with asyncio.timeout(60):
            number = 0
            while served.store.watches:
                data["metadata"]["name"] = f"m{number}"
                await served.store.write("configmaps", Key("default", f"m{number}"), data)
                number += 1
                await asyncio.sleep(0.02)


async def test_the_longest_idle_connection_is_closed_for_a_new_one(served, monkeypatch):
    async with (
        served.connection() as busy,
        served.connection() as first,
        served.connection() as second,
    ):
        busy.send("GET", f"{MAPS}?watch=1&resourceVersion=1")
        assert (await busy.head())[0] == 200
        for connection in (first, second):
            await connection.ask("GET", "/healthz")
        monkeypatch.setattr(serving, "MAX_CONNECTIONS", 3)
        async with served.connection() as third:
            assert (await third.ask("GET", "/healthz"))[0] == 200
            assert await first.reader.read() == b""
            assert (await second.ask("GET", "/healthz"))[0] == 200
            await second.ask("POST", MAPS, b'{"metadata":{"name":"a"}}')
            assert b'"ADDED"' in await busy.chunk()


async def test_unauthenticated_connections_are_closed_first(served, monkeypatch):
    async with AsyncExitStack() as stack:
        user, quiet, wrong, anybody = [
            await stack.enter_async_context(served.connection()) for _ in range(4)
        ]
        assert (await user.ask("GET", MAPS))[0] == 200
        wrong.token = "wrong"
        assert (await wrong.ask("GET", MAPS))[0] == 401
        anybody.writer.write(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n")
        assert (await anybody.head())[0] == 200
        monkeypatch.setattr(serving, "MAX_CONNECTIONS", 4)
        for stranger in (quiet, wrong, anybody):
            newest = await stack.enter_async_context(served.connection())
            assert (await newest.ask("GET", MAPS))[0] == 200
            async with asyncio.timeout(60):
                rest = await stranger.reader.read()
            assert rest == (b"ok" if stranger is anybody else b"")
        assert (await user.ask("GET", MAPS))[0] == 200
        newest = await stack.enter_async_context(served.connection())
        assert (await newest.ask("GET", MAPS))[0] == 200


async def test_silent_unauthenticated_connections_are_limited(served, monkeypatch):
    monkeypatch.setattr(serving, "MAX_CONNECTIONS", 3)
    async with AsyncExitStack() as stack:
        silent = [await stack.enter_async_context(served.connection()) for _ in range(8)]
        async with asyncio.timeout(60):
            for first in silent[:-3]:
                with suppress(ConnectionError):
                    assert await first.reader.read() == b""
        assert (await silent[-1].ask("GET", "/healthz"))[0] == 200


async def test_a_watch_with_a_split_head_after_another_request_lasts(tmp_path, monkeypatch):
    monkeypatch.setattr(serving, "KEEP_ALIVE_SECONDS", 1)
    async with running(tmp_path) as served, served.connection() as connection:
        connection.send("GET", "/healthz")
        connection.writer.write(f"GET {MAPS}?watch=1&resourceVersion=1 HTTP/1.1\r\n".encode())
        _, headers = await connection.head()
        await connection.reader.readexactly(int(headers["content-length"]))
        connection.writer.write(f"authorization: Bearer {connection.token}\r\n\r\n".encode())
        assert (await connection.head())[0] == 200
        await asyncio.sleep(1.3)
        async with served.connection() as other:
            await other.ask("POST", MAPS, b'{"metadata":{"name":"a"}}')
        assert b'"ADDED"' in await connection.chunk()


async def test_without_idle_connections_the_newest_is_closed(served, monkeypatch):
    async with served.connection() as busy:
        busy.send("GET", f"{MAPS}?watch=1&resourceVersion=1")
        assert (await busy.head())[0] == 200
        monkeypatch.setattr(serving, "MAX_CONNECTIONS", 1)
        async with served.connection() as other:
            assert await other.reader.read() == b""


async def test_requests_can_be_pipelined(served):
    async with served.connection() as connection:
        for number in range(20):
            body = json.dumps({"metadata": {"name": f"m{number}"}}).encode()
            connection.send("POST", MAPS, body)
        connection.send("GET", MAPS)
        names = []
        for _ in range(20):
            status, headers = await connection.head()
            answer = await connection.reader.readexactly(int(headers["content-length"]))
            names.append((status, json.loads(answer)["metadata"]["name"]))
        assert names == [(201, f"m{number}") for number in range(20)]
        _, headers = await connection.head()
        answer = await connection.reader.readexactly(int(headers["content-length"]))
        assert len(json.loads(answer)["items"]) == 20


@pytest.mark.parametrize(
    ("method", "path", "code"),
    [("OPTIONS", MAPS, 405), ("TRACE", MAPS, 405), ("HEAD", MAPS, 405), ("HEAD", "/healthz", 200)],
)
async def test_unusual_http_methods(served, method, path, code):
    async with served.connection() as connection:
        connection.send(method, path)
        status, headers = await connection.head()
        assert status == code
        if method != "HEAD":
            await connection.reader.readexactly(int(headers["content-length"]))
        assert (await connection.ask("GET", "/healthz"))[1] == b"ok"


class Wire:
    """A transport that remembers what is sent at once."""

    def __init__(self):
        self.sent = []
        self.closed = False

    def write(self, data):
        self.sent.append(data)

    def writelines(self, pieces):
        self.sent.append(b"".join(pieces))

    def is_closing(self):
        return self.closed

    def close(self):
        self.closed = True


async def test_writes_of_one_loop_iteration_are_sent_together():
    wire = Wire()
    transport = CoalescingTransport(wire, asyncio.get_running_loop())
    transport.write(b"head ")
    transport.write(b"body")
    assert wire.sent == []
    await asyncio.sleep(0)
    assert wire.sent == [b"head body"]
    transport.write(b"last words")
    transport.close()
    assert (wire.sent[1:], wire.closed) == ([b"last words"], True)
    transport.write(b"too late")
    await asyncio.sleep(0)
    assert len(wire.sent) == 2


async def test_write_and_flush_sends_earlier_writes_too():
    wire = Wire()
    transport = CoalescingTransport(wire, asyncio.get_running_loop())
    transport.write(b"go on, ")
    transport.write_and_flush(b"answer")
    assert wire.sent == [b"go on, answer"]
    await asyncio.sleep(0)
    transport.close()
    transport.write_and_flush(b"too late")
    assert len(wire.sent) == 1


async def test_large_writes_are_sent_at_once():
    wire = Wire()
    transport = CoalescingTransport(wire, asyncio.get_running_loop())
    large = b"x" * MAX_BUFFERED_BYTES
    transport.write(b"head")
    transport.write(large)
    transport.write(b"tail")
    assert wire.sent == [b"head" + large]
    await asyncio.sleep(0)
    assert wire.sent[1:] == [b"tail"]


async def test_requests_leave_no_reference_cycles(served):
    """Garbage that refers to itself is found late, and to search for it takes long."""
    async with served.connection() as one:
        gc.collect()
        gc.disable()
        try:
            for _ in range(20):
                await one.ask("GET", MAPS)
            left = [each for each in gc.get_objects() if type(each) is RequestResponseCycle]
        finally:
            gc.enable()
    assert len(left) < 5


@pytest.mark.parametrize("path", [SPACES, f"{MAPS}/none", f"{MAPS}?watch=1"])
async def test_a_closed_connection_is_freed_at_once(served, path):
    """Many that are closed together would stay for long, and what they hold with them."""
    gc.collect()
    gc.disable()
    try:
        async with served.connection() as one:
            one.send("GET", path)
            await one.head()
            gone = [ending(each) for each in gc.get_objects() if type(each) is serving.Connection]
            assert gone
        async with asyncio.timeout(60):
            for each in gone:
                await each.wait()
    finally:
        gc.enable()


def ending(thing):
    """Is set when a thing is no more."""
    event = asyncio.Event()
    weakref.finalize(thing, event.set)
    return event


@pytest.mark.parametrize("size", [8_000, 40_000])
async def test_reading_watchers_are_not_aborted(tmp_path, size):
    """All get a change at the same time, and none of them waits."""
    async with running(tmp_path / "pki") as served, AsyncExitStack() as stack:
        served.server.watches._backlog = Backlog(6 * BUFFERED_BYTES + size)
        watchers = [await stack.enter_async_context(served.connection()) for _ in range(20)]
        for each in watchers:
            each.send("GET", f"{MAPS}?watch=1")
            await each.head()
        body = json.dumps({"metadata": {"name": "a"}, "data": {"pad": "x" * size}}).encode()
        async with served.connection() as one:
            await one.ask("POST", MAPS, body)
        for each in watchers:
            assert json.loads(await each.line())["type"] == "ADDED"


async def test_a_watcher_that_does_not_read_is_aborted(tmp_path):
    """Many that read nothing would fill the memory with what is pending for them."""
    data = {"metadata": {"name": "a"}, "data": {"pad": "x" * 1_000_000}}
    body = json.dumps(data).encode()
    async with running(tmp_path / "pki") as served, AsyncExitStack() as stack:
        # too little for all of them, even where all wait for the same
        backlog = Backlog(most := 6 * BUFFERED_BYTES + len(body) + (100 << 10))
        served.server.watches._backlog = backlog
        watchers = [await stack.enter_async_context(served.connection()) for _ in range(13)]
        for each in watchers:
            each.send("GET", f"{MAPS}?watch=1&resourceVersion=1")
            await each.head()
        *slow, reader = watchers  # of those that wait equally long the first is cut off first
        for each in slow:
            each.writer.transport.pause_reading()
        async with asyncio.timeout(60), served.connection() as writer:
            for number in range(40):  # more than the kernel's buffers hold
                method, path = ("PUT", f"{MAPS}/a") if number else ("POST", MAPS)
                status, _ = await writer.ask(method, path, body.replace(b"xx", b"%02d" % number))
                assert status < 300
                assert json.loads(await reader.line())["object"]["metadata"]["name"] == "a"
                assert backlog.size <= most
                if served.store.watches <= 1 + 6:
                    break
            else:
                pytest.fail("nobody was cut off")


async def test_tls_connections_share_a_receive_buffer(served):
    """A thousand that are idle would hold a thousand otherwise."""
    async with served.connection() as one, served.connection() as other:
        for connection in (one, other):
            await connection.ask("GET", "/healthz")
        ends = [each for each in gc.get_objects() if is_served_by(each, served.port)]
        assert len(ends) >= 2
        assert all(each._ssl_buffer is serving._INBOX for each in ends)


def is_served_by(thing, port):
    """Return whether a thing is the TLS of a server's connection: other tests leave garbage."""
    if type(thing) is not SSLProtocol or not thing._server_side or thing._transport is None:
        return False
    return thing._transport.get_extra_info("sockname")[1] == port


async def test_logs_come_from_the_node(served):
    async with served.connection() as connection:
        pod = {
            "metadata": {"name": "pod"},
            "spec": {"nodeName": "one", "containers": [{"name": "compute", "image": "x"}]},
        }
        assert (await connection.ask("POST", PODS, json.dumps(pod).encode()))[0] == 201
        connection.send("GET", f"{PODS}/pod/log?follow=true&tailLines=5")
        assert (await connection.head())[0] == 200
        text = await connection.chunk()
        assert text == b"/containerLogs/default/pod/compute?follow=true&tailLines=5"


async def running_machine(served, machine, **status):
    """A machine with a status, written by the component that may."""
    machine["metadata"]["namespace"] = "default"
    machine["metadata"]["uid"] = "uid-1"
    machine["status"] = status
    stored = "virtualmachineinstances.kubevirt.io"
    await served.store.write(stored, Key("default", "vm"), machine)


async def test_the_console_is_a_websocket_to_the_node(served, machine):
    await running_machine(served, machine, phase="Running", nodeName="one")
    async with served.websocket(CONSOLE.format("vm")) as console:
        assert console.subprotocol == "plain.kubevirt.io"
        assert await console.recv() == b"/console/default/vm/uid-1"
        await console.send(b"hello")
        assert await console.recv() == b"HELLO"


async def test_a_silent_console_stays_open(tmp_path, machine, monkeypatch):
    monkeypatch.setattr(serving, "KEEP_ALIVE_SECONDS", 1)
    async with running(tmp_path) as served:
        await running_machine(served, machine, phase="Running", nodeName="one")
        async with served.websocket(CONSOLE.format("vm")) as console:
            await console.recv()
            await asyncio.sleep(1.3)
            await console.send(b"hello")
            assert await console.recv() == b"HELLO"


async def test_an_exception_of_a_node_is_logged(served, machine):
    await running_machine(served, machine, phase="Running", nodeName="one")
    with capture_logs() as logs:
        async with served.websocket(CONSOLE.format("vm")) as console:
            await console.recv()
            await console.send(b"fail")
            with pytest.raises(ConnectionClosed):
                await console.recv()
    assert [(each["event"], each["path"]) for each in logs] == [
        ("request to a node failed", "/console/default/vm/uid-1")
    ]


async def test_a_console_is_rejected_before_the_upgrade(served, machine):
    await running_machine(served, machine, phase="Scheduling")
    for path, token, code in (
        (CONSOLE.format("nosuch"), None, 404),
        (CONSOLE.format("vm"), None, 400),
        (CONSOLE.format("vm"), "wrong", 401),
        (MAPS, None, 400),
        ("/nonsense", None, 404),
    ):
        with pytest.raises(InvalidStatus) as refusal:
            async with served.websocket(path, token):
                pass
        assert refusal.value.response.status_code == code
        if path != "/nonsense":
            assert json.loads(refusal.value.response.body)["kind"] == "Status"


async def test_a_port_in_use_is_named(tmp_path):
    async with listening(agent, "127.0.0.1", 0, None) as (_, port):
        with pytest.raises(ServeError, match=f"127.0.0.1:{port} is taken by another program"):
            async with listening(agent, "127.0.0.1", port, None):
                pass


async def test_watches_end_cleanly_at_shutdown(tmp_path):
    async with running(tmp_path) as served:
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port, ssl=served.trust)
        connection = Connection(reader, writer, served.identity.token)
        connection.send("GET", f"{MAPS}?watch=1&resourceVersion=1")
        await connection.head()
    async with asyncio.timeout(60):
        assert await connection.chunk() == b""  # the last chunk, not a torn connection
    writer.close()


async def tunnel(served, connection, path, method="POST"):
    headers = {"connection": "Upgrade", "upgrade": "SPDY/3.1"}
    protocols = {"x_stream_protocol_version": "portforward.k8s.io"}
    connection.send(method, path, **headers, **protocols)
    return await connection.head()


async def forwarded_pod(served, connection, phase="Running"):
    pod = {"metadata": {"name": "pod", "namespace": "default"}, "spec": {"nodeName": "one"}}
    served.store.write("pods", Key("default", "pod"), pod | {"status": {"phase": phase}})
    return f"{PODS}/pod/portforward"


async def test_connections_are_upgraded_to_spdy_on_request(served):
    async with served.connection() as connection:
        path = await forwarded_pod(served, connection)
        status, headers = await tunnel(served, connection, path)
        assert (status, headers["upgrade"]) == (101, "spdy/3.1")
        assert headers["x-stream-protocol-version"] == "portforward.k8s.io"
        where = b"/portForward/default/pod"
        assert await connection.reader.readexactly(len(where)) == where
        large = b"a" * 3_000_000
        connection.writer.write(large)
        assert await connection.reader.readexactly(len(large)) == large.upper()


async def test_a_silent_tunnel_stays_open(tmp_path, monkeypatch):
    monkeypatch.setattr(serving, "KEEP_ALIVE_SECONDS", 1)
    async with running(tmp_path) as served, served.connection() as connection:
        await tunneled(served, connection)
        await asyncio.sleep(1.3)
        connection.writer.write(b"hello")
        assert await connection.reader.readexactly(5) == b"HELLO"


async def test_a_rejected_tunnel_has_an_error_message(served):
    async with served.connection() as connection:
        path = await forwarded_pod(served, connection, phase="Pending")
        status, headers = await tunnel(served, connection, path)
        body = await connection.reader.readexactly(int(headers["content-length"]))
        assert (status, json.loads(body)["reason"]) == (400, "BadRequest")
        assert await connection.reader.read() == b"", "the connection ends"


@pytest.mark.parametrize("path", [MAPS, f"{MAPS}?watch=1", CONSOLE.format("one")])
async def test_paths_without_streams_reject_spdy(served, path):
    async with served.connection() as connection:
        status, _ = await tunnel(served, connection, path, method="GET")
        assert status in (400, 404)
    assert not served.store.watches


async def test_tunnels_end_with_the_server(tmp_path):
    async with running(tmp_path / "pki") as served:
        open_connection = served.connection()
        connection = await open_connection.__aenter__()
        await tunnel(served, connection, await forwarded_pod(served, connection))
    assert await connection.reader.read() == b"/portForward/default/pod"
    connection.writer.close()


async def test_an_exception_of_the_kubelet_ends_the_tunnel(served):
    async with served.connection() as connection:
        await tunnel(served, connection, await forwarded_pod(served, connection))
        await connection.reader.readexactly(len(b"/portForward/default/pod"))
        with capture_logs() as logs:
            connection.writer.write(b"fail")
            assert await connection.reader.read() == b""
        assert [line for line in logs if line["event"] == "a stream failed"]


async def talk(writer, times):
    for _ in range(times):
        writer.write(bytes(100_000))
        await writer.drain()


async def tunneled(served, connection):
    await tunnel(served, connection, await forwarded_pod(served, connection))
    await connection.reader.readexactly(len(b"/portForward/default/pod"))


async def test_a_client_that_still_sends_gets_all_data(served):
    async with served.connection() as connection:
        await tunneled(served, connection)
        connection.writer.write(b"bye")
        await connection.reader.readexactly(500_000)
        await talk(connection.writer, 100)
        await connection.reader.readexactly(500_000)


async def test_a_client_that_does_not_close_is_disconnected(served, monkeypatch):
    monkeypatch.setattr("corral.server.transport.spdy_upgrade.CLOSE_STALL_SECONDS", 0.05)
    async with served.connection() as connection:
        await tunneled(served, connection)
        connection.writer.write(b"bye")
        assert len(await connection.reader.read()) == 1_000_000


async def test_a_tunnel_whose_client_does_not_read_is_aborted(served, monkeypatch):
    monkeypatch.setattr("corral.server.transport.slow_reader.UNREAD_SECONDS", 0.05)
    async with served.connection() as connection:
        await tunneled(served, connection)
        connection.writer.transport.pause_reading()
        with pytest.raises(ConnectionError):
            await talk(connection.writer, 1000)


async def test_data_for_a_node_that_does_not_read_is_limited(served):
    async with served.connection() as connection:
        await tunneled(served, connection)
        connection.writer.write(b"wait")
        await connection.reader.readexactly(3)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):  # it is never taken, however long one waits
                await talk(connection.writer, 1000)
        gc.collect()  # those of other tests
        (tunnel,) = (each for each in gc.get_objects() if type(each) is Tunnel)
        kept = (tunnel._messages.get_nowait() for _ in range(tunnel._messages.qsize()))
        assert sum(len(message.get("bytes", b"")) for message in kept) <= 1 << 20
        NODE_READS.set()


@pytest.mark.parametrize("upgrade", ["SPDY/3.1", "websocket"])
async def test_an_upgrade_during_a_response_closes_the_connection(served, upgrade):
    async with served.connection() as connection:
        await forwarded_pod(served, connection)
        connection.send("GET", f"{MAPS}?watch=1")
        headers = {"connection": "Upgrade", "upgrade": upgrade}
        connection.send("GET", f"{PODS}/pod/portforward", **headers)
        assert b"101 Switching" not in await connection.reader.read()
    async with asyncio.timeout(60):
        while served.store.watches:  # it learns of the closed connection
            await asyncio.sleep(0.01)


async def test_a_path_with_invalid_bytes_is_rejected(served):
    async with served.connection() as connection:
        lines = (
            b"POST /\xff HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: SPDY/3.1\r\n\r\n"
        )
        connection.writer.write(lines)
        status, _ = await connection.head()
        assert status in (400, 401, 404)


async def test_impersonated_groups_are_repeated_headers(served):
    async with served.connection() as connection:
        path = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
        groups = "one, with a comma\r\nimpersonate-group: system:masters"
        acting = {"impersonate_user": "eve", "impersonate_group": groups}
        status, body = await connection.ask("POST", path, b"{}", **acting)
        assert status == 201
        found = json.loads(body)["status"]["userInfo"]["groups"]
        assert found == ["one, with a comma", "system:masters", "system:authenticated"]


def test_cached_heads_exclude_headers_of_single_responses():
    sent = []

    def send(status, head, body):
        sent.append((status, head, body))
        return True

    asgi._common_head.cache_clear()
    for number in range(3):
        own = [("audit-id", str(number)), ("etag", f'"{number}"')]
        response = Response(headers=[("content-type", "text/plain"), *own])
        assert asgi._try_send_at_once(send, response, b"ok")
        lines = set(sent[-1][1].decode().splitlines())
        expected = {f"audit-id: {number}", f'etag: "{number}"', "content-type: text/plain"}
        assert lines == expected | {"content-length: 2"}
    assert asgi._common_head.cache_info().misses == 1
    broken = Response(headers=[("etag", '"\r\nx: y"')])
    assert not asgi._try_send_at_once(send, broken, b"ok")


async def test_a_node_does_not_wait_for_a_body_that_the_server_has_read():
    received = []

    async def node(_scope, receive, _send):
        received.append(await receive())
        received.append(await receive())

    async def receive():
        return {"type": "http.disconnect"}

    async def send(_message):
        raise AssertionError

    scope = {"type": "http", "method": "PUT", "headers": []}
    forward = Forward(app=node, path="/pause/default/a/1", query="")
    await asgi.forward(scope, forward, receive, send)
    assert received == [
        {"type": "http.request", "body": b"", "more_body": False},
        {"type": "http.disconnect"},
    ]


def browser(served, path, *protocols, token=None, **headers):
    """A websocket as browsers open it: its token is a subprotocol, if any."""
    bearer = base64.urlsafe_b64encode((token or served.identity.token).encode()).rstrip(b"=")
    offered = [*protocols, f"base64url.bearer.authorization.k8s.io.{bearer.decode()}"]
    return connect(
        f"wss://127.0.0.1:{served.port}{path}",
        ssl=served.trust,
        subprotocols=[websockets.Subprotocol(each) for each in offered],
        additional_headers=headers,
        proxy=None,
        open_timeout=60,
    )


async def test_a_watch_over_a_websocket_has_a_message_for_each_event(served):
    async with served.connection() as writer:
        for name in ("a", "b"):
            await writer.ask("POST", MAPS, json.dumps({"metadata": {"name": name}}).encode())
        async with browser(served, f"{MAPS}?watch=1", "json.k8s.io") as watch:
            assert watch.subprotocol == "json.k8s.io"
            await writer.ask("POST", MAPS, b'{"metadata":{"name":"c"}}')
            events = [json.loads(await watch.recv()) for _ in range(3)]
            assert [each["object"]["metadata"]["name"] for each in events] == ["a", "b", "c"]
            assert {each["type"] for each in events} == {"ADDED"}
            assert served.store.watches == 1
        async with asyncio.timeout(60):
            while served.store.watches:
                await writer.ask("GET", "/healthz")


async def test_a_watch_over_a_websocket_ends_with_a_close(served):
    async with served.websocket(f"{MAPS}?watch=1&timeoutSeconds=1") as watch:
        async with asyncio.timeout(60):
            assert [event async for event in watch] == []
        assert watch.close_code == 1000


@pytest.mark.parametrize(
    ("path", "protocols", "token", "status"),
    [
        (f"{MAPS}?watch=1", ["a"], "wrong", 401),
        (f"{MAPS}?watch=1", ["a"], "other", 403),
        (f"{MAPS}?watch=1", [], None, 401),
        (f"{MAPS}?watch=1", ["a", "b"], None, 400),
        (f"{MAPS}?watch=1&resourceVersion=-1", ["a"], None, 400),
        (MAPS, ["a"], None, 400),
    ],
)
async def test_a_watch_over_a_websocket_is_refused(served, path, protocols, token, status):
    with pytest.raises(InvalidStatus) as refused:
        async with browser(served, path, *protocols, token=token):
            pass
    assert refused.value.response.status_code == status
    assert not served.store.watches


async def test_a_token_in_a_subprotocol_opens_a_console(served, machine):
    """The agent fails if it sees the credentials."""
    await running_machine(served, machine, phase="Running", nodeName="one")
    async with browser(served, CONSOLE.format("vm"), "plain.kubevirt.io") as console:
        assert console.subprotocol == "plain.kubevirt.io"
        assert await console.recv() == b"/console/default/vm/uid-1"


async def session_of(served):
    async with served.connection() as page:
        _, body = await page.ask("POST", "/dashboard/sign-in", b"{}")
        code = json.dumps({"code": json.loads(body)["code"]}).encode()
        _, body = await page.ask("POST", "/dashboard/session", code)
    return json.loads(body)["token"]


async def test_a_session_is_for_the_dashboard_of_its_server(served):
    token, path = await session_of(served), f"{MAPS}?watch=1"
    own = f"https://127.0.0.1:{served.port}"
    async with browser(served, path, "json.k8s.io", token=token, origin=own):
        pass
    with pytest.raises(InvalidStatus) as refused:
        async with browser(served, path, "json.k8s.io", token=token, origin="https://evil.example"):
            pass
    assert refused.value.response.status_code == 403


async def test_sign_out_ends_open_watches(served):
    token = await session_of(served)
    async with browser(served, f"{MAPS}?watch=1", "json.k8s.io", token=token) as watch:
        async with served.connection() as page:
            page.token = token
            page.send("DELETE", "/dashboard/session")
            assert (await page.head())[0] == 204
        async with asyncio.timeout(60):
            with pytest.raises(ConnectionClosed) as closed:
                await watch.recv()
        assert closed.value.rcvd.code == 1008
