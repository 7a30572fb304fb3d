"""Streams of migrations between simulated hosts: websockets without a network, which tests cut."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlencode

import httpx2

from corral.aio import Background
from corral.api.errors import Unavailable, error_from_status
from corral.api.images import MIGRATIONS_PATH
from corral.client.client import Client
from corral.client.stream import StreamLost
from corral.node.images.limits import Limits
from corral.node.kubelet.migrations import MigrationServer
from corral.node.machine.migration.remote_targets import RemoteTargets
from corral.node.machine.migration.source_files import FileCopies
from corral.node.machine.migration.targets import MigrationTargets


class HostNetwork:
    """The hosts by the name of their node, and the connections between them."""

    def __init__(self) -> None:
        self._servers: dict[str, MigrationServer] = {}
        self._tasks: dict[str, Background] = {}
        self._open: set[Connection] = set()
        self.is_up = True

    def targets(self, node: str, client: Client) -> MigrationTargets:
        """Return the targets of a host whose agent is about to start."""
        links = Links(self, node)
        remote = RemoteTargets(links, FileCopies(links, list, Limits()), _Later(self._tasks, node))
        targets = MigrationTargets(lambda other: other == node, remote)
        self._servers[node] = MigrationServer(client, targets, list)
        return targets

    def begin(self, node: str, tasks: Background) -> None:
        """Let the agent of a host start connections."""
        self._tasks[node] = tasks

    def end(self, node: str) -> None:
        """End all connections of an agent, as the kernel does when it is killed."""
        self._servers.pop(node, None)
        for each in list(self._open):
            if node in each.nodes:
                each.cut()

    def cut(self) -> None:
        """Cut all connections, and let no new ones come about until ``heal``."""
        self.is_up = False
        for each in list(self._open):
            each.cut()

    def heal(self) -> None:
        self.is_up = True

    @asynccontextmanager
    async def connect(self, source: str, node: str, query: Mapping[str, str]) -> AsyncIterator[Any]:
        server = self._servers.get(node)
        if server is None or not self.is_up:
            raise Unavailable(f"node {node} cannot be reached")
        connection = Connection(source, node)
        serving = asyncio.create_task(server(_scope("websocket", source, query), *connection.ends))
        self._open.add(connection)
        try:
            await connection.accepted
            yield connection
        finally:
            self._open.discard(connection)
            connection.cut()
            await asyncio.wait({serving})

    async def download(self, source: str, node: str, query: Mapping[str, str]) -> httpx2.Response:
        server = self._servers.get(node)
        if server is None or not self.is_up:
            raise Unavailable(f"node {node} cannot be reached")

        async def app(scope: Any, receive: Any, send: Any) -> None:
            await server({**scope, "state": {"user": f"system:node:{source}"}}, receive, send)

        transport = httpx2.ASGITransport(app)
        async with httpx2.AsyncClient(transport=transport, base_url="http://host") as client:
            return await client.get(MIGRATIONS_PATH, params=query)


class _Later:
    """The tasks of a host, once its agent runs."""

    def __init__(self, tasks: dict[str, Background], node: str) -> None:
        self._tasks = tasks
        self._node = node

    def start(self, work: Any, *, name: str) -> Any:
        return self._tasks[self._node].start(work, name=name)


class Links:
    """The links of one host."""

    def __init__(self, network: HostNetwork, node: str) -> None:
        self._network = network
        self._node = node

    def open(self, node: str, query: Mapping[str, str]) -> Any:
        return self._network.connect(self._node, node, query)

    @asynccontextmanager
    async def download(self, node: str, query: Mapping[str, str]) -> AsyncIterator[Any]:
        answer = await self._network.download(self._node, node, query)

        async def content() -> AsyncIterator[bytes]:
            yield answer.content

        yield answer.status_code, content()


class Connection:
    """A websocket between two hosts; the client's side is a ``Channel``."""

    def __init__(self, source: str, node: str) -> None:
        self.nodes = {source, node}
        self._to_server: asyncio.Queue[Any] = asyncio.Queue()
        self._to_client: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._is_cut = self._is_closed = False
        self.accepted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._refused = 0
        self._to_server.put_nowait({"type": "websocket.connect"})
        self.ends = (self._to_server.get, self._from_server)

    def cut(self) -> None:
        if not self._is_cut:
            self._is_cut = True
            self._to_server.put_nowait({"type": "websocket.disconnect", "code": 1006})
            self._to_client.put_nowait(None)

    async def send(self, data: bytes) -> None:
        await asyncio.sleep(0)
        if self._is_cut:
            raise StreamLost("cut")
        self._to_server.put_nowait({"type": "websocket.receive", "bytes": data})

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while (data := await self._to_client.get()) is not None:
            yield data
        if not self._is_closed:
            raise StreamLost("cut")

    async def _from_server(self, message: Any) -> None:
        await asyncio.sleep(0)
        match message["type"]:
            case "websocket.accept":
                self.accepted.set_result(None)
            case "websocket.http.response.start":
                self._refused = message["status"]
            case "websocket.http.response.body":
                status = json.loads(message["body"])
                self.accepted.set_exception(error_from_status(status, self._refused))
            case "websocket.send" if not self._is_cut:
                self._to_client.put_nowait(message["bytes"])
            case "websocket.close" if not self._is_cut:
                self._is_closed = True
                self._to_client.put_nowait(None)


def _scope(kind: str, source: str, query: Mapping[str, str]) -> dict[str, Any]:
    return {
        "type": kind,
        "path": MIGRATIONS_PATH,
        "query_string": urlencode(query).encode(),
        "headers": [],
        "subprotocols": ["plain.kubevirt.io"],
        "state": {"user": f"system:node:{source}"},
        "extensions": {"websocket.http.response": {}},
    }
