"""The doors of a node that the API server leads clients to: those of pods, and of machines.

Paths are a kubelet's where it has them; the API server has authorised who comes here.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from datetime import UTC, datetime
from functools import partial

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket

from corral.api.errors import ApiError, BadRequest, NotFound
from corral.api.kinds.machine import COMPUTE
from corral.api.object import Key
from corral.node import commands, websockets
from corral.node.doors import Doors
from corral.node.logs import Logs, grown, tail
from corral.node.machine import Machine
from corral.node.portforward import PROTOCOL, PortForward


class Kubelet:
    """The ASGI app of a node."""

    def __init__(
        self,
        of_pod: Callable[[Key], Machine | None],
        logs: Logs,
        doors: Doors,
    ) -> None:
        self._of_pod = of_pod
        self._logs = logs
        self._doors = doors
        self.asgi = Starlette(
            routes=[
                Route("/containerLogs/{namespace}/{pod}/{container}", self._container_logs),
                WebSocketRoute("/exec/{namespace}/{pod}/{container}", self._exec),
                WebSocketRoute("/portForward/{namespace}/{pod}", self._port_forward),
                *doors.routes(),
            ],
            exception_handlers={ApiError: _refuse},
        )

    async def run(self) -> None:
        """Keep what was promised to clients, until cancelled."""
        await self._doors.freezer.run()

    def _machine(self, parameters: Mapping[str, str]) -> tuple[Key, Machine]:
        key = Key(parameters["namespace"], parameters["pod"])
        machine = self._of_pod(key)
        if machine is None:
            raise NotFound(f'the machine of pod "{key.name}" is not on this node')
        return key, machine

    async def _exec(self, websocket: WebSocket) -> None:
        try:
            _, machine = self._machine(websocket.path_params)
        except NotFound as error:
            await websockets.deny(websocket, error)
        else:
            await commands.execute(websocket, machine)

    async def _port_forward(self, websocket: WebSocket) -> None:
        try:
            key, machine = self._machine(websocket.path_params)
        except NotFound as error:
            await websockets.deny(websocket, error)
            return
        if PROTOCOL not in (websocket.scope.get("subprotocols") or []):
            refusal = f"unable to upgrade: only {PROTOCOL} is spoken, as kubectl does since 1.31"
            await websockets.deny(websocket, BadRequest(refusal))
            return
        whom = f"pod {key.name}, uid {machine.record.pod_uid}"
        connect = partial(self._doors.connect, machine)
        await PortForward(websocket, connect, whom).serve()

    async def _container_logs(self, request: Request) -> Response:
        key, machine = self._machine(request.path_params)
        container = request.path_params["container"]
        if container != COMPUTE:
            return PlainTextResponse("")  # the others have nothing to say
        wish = _Wish(request.query_params)
        if wish.previous:
            raise BadRequest(
                f'previous terminated container "{container}" in pod "{key.name}" not found'
            )
        return StreamingResponse(wish.shaped(self._read(machine, wish)), media_type="text/plain")

    async def _read(self, machine: Machine, wish: "_Wish") -> AsyncIterator[bytes]:
        directory = machine.directory
        self._logs.follow(directory)
        with self._logs.changes(directory) as changed:
            kept, at = await asyncio.to_thread(tail, directory, wish.tail_lines)
            yield kept
            if wish.follow:
                async for chunk in grown(directory, at, changed, lambda: machine.facts.ended):
                    yield chunk


class _Wish:
    """The query of a log request (core/v1 PodLogOptions)."""

    def __init__(self, query: Mapping[str, str]) -> None:
        self.follow = query.get("follow") == "true"
        self.previous = query.get("previous") == "true"
        self.timestamps = query.get("timestamps") == "true"
        self.tail_lines = _count(query, "tailLines")
        self.limit_bytes = _count(query, "limitBytes")

    async def shaped(self, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """The chunks, cut and stamped as asked for."""
        left = self.limit_bytes
        at_start = True
        async for chunk in chunks:
            shaped = chunk
            if self.timestamps:
                shaped, at_start = _stamped(chunk, at_start=at_start)
            if left is not None:
                shaped = shaped[:left]
                left -= len(shaped)
            yield shaped
            if left == 0:
                return


def _stamped(chunk: bytes, *, at_start: bool) -> tuple[bytes, bool]:
    """Lines with the time when they were read: a serial port does not tell an earlier one."""
    stamp = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ ").encode()
    lines = chunk.split(b"\n")
    ends_line = lines[-1] == b""
    stamped = [(stamp if index or at_start else b"") + line for index, line in enumerate(lines)]
    if ends_line:
        stamped[-1] = b""
    return b"\n".join(stamped), ends_line if chunk else at_start


def _count(query: Mapping[str, str], name: str) -> int | None:
    text = query.get(name)
    if text is None:
        return None
    if not text.isdecimal() or len(text) > 18:
        raise BadRequest(f'{name}: "{text}" is not a number that counts something')
    return int(text)


async def _refuse(_request: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError)
    return JSONResponse(error.status(), status_code=error.code)
