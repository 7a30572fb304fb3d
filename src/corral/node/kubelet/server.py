"""The HTTP server of a node: the endpoints of pods and of VMIs.

Paths are those of a kubelet, where it has them.  Requests come from the API server, which has
authorised the client.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Route, Router, WebSocketRoute
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket

from corral.api.errors import ApiError, BadRequest, NotFound
from corral.api.kinds.vmi.derived import COMPUTE, CONSOLE_LOG
from corral.api.object import Key
from corral.api.time import parse_rfc3339
from corral.node.kubelet import exec_command, websockets
from corral.node.kubelet.logs import Logs
from corral.node.kubelet.portforward import CHANNELS, PROTOCOL, PortChannels, PortForward, ports_of
from corral.node.kubelet.spdy_channels import channels
from corral.node.kubelet.vmi_endpoints import VmiEndpoints
from corral.node.machine.lifecycle import Machine
from corral.node.metrics.sampling.kubelet_endpoints import ResourceEndpoints


class Kubelet:
    """The ASGI app of a node; ``extra_routes``: endpoints that belong to no single machine."""

    def __init__(
        self,
        machine_of: Callable[[Key], Machine | None],
        logs: Logs,
        vmi_endpoints: VmiEndpoints,
        sampling: ResourceEndpoints,
        extra_routes: Sequence[BaseRoute] = (),
    ) -> None:
        self._machine_of = machine_of
        self._logs = logs
        self._vmi_endpoints = vmi_endpoints
        # Without Starlette's application, whose pages of errors take half a MiB.
        self._router = Router(
            routes=[
                Route("/containerLogs/{namespace}/{pod}/{container}", self._container_logs),
                WebSocketRoute("/exec/{namespace}/{pod}/{container}", self._exec),
                WebSocketRoute("/portForward/{namespace}/{pod}", self._port_forward),
                *vmi_endpoints.routes(),
                *sampling.routes(),
                *extra_routes,
            ]
        )

    async def asgi(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Respond to a request; an ApiError is a Status."""
        try:
            await self._router(scope, receive, send)
        except ApiError as error:
            if scope["type"] != "http":
                raise
            await JSONResponse(error.status(), status_code=error.code)(scope, receive, send)

    async def run(self) -> None:
        """Thaw frozen guests in time, until cancelled."""
        await self._vmi_endpoints.freezer.run()

    def resume_freeze_timer(self, machine: Machine) -> None:
        """Resume the freeze timer that an earlier manager has recorded for a machine."""
        self._vmi_endpoints.freezer.resume_timer(machine)

    def _machine(self, parameters: Mapping[str, str]) -> tuple[Key, Machine]:
        key = Key(parameters["namespace"], parameters["pod"])
        machine = self._machine_of(key)
        if machine is None:
            raise NotFound(f'the machine of pod "{key.name}" is not on this node')
        return key, machine

    async def _synced_machine(self, parameters: Mapping[str, str]) -> tuple[Key, Machine]:
        key, machine = self._machine(parameters)
        await machine.synced()
        return key, machine

    async def _exec(self, websocket: WebSocket) -> None:
        try:
            _, machine = await self._synced_machine(websocket.path_params)
        except NotFound as error:
            await websockets.deny(websocket, error)
        else:
            await exec_command.execute(channels(websocket), machine)

    async def _port_forward(self, websocket: WebSocket) -> None:
        try:
            key, machine = await self._synced_machine(websocket.path_params)
        except NotFound as error:
            await websockets.deny(websocket, error)
            return
        offered = websocket.scope.get("subprotocols") or []
        target = f"pod {key.name}, uid {machine.record.pod_uid}"
        connect = partial(self._vmi_endpoints.connect, machine)
        if PROTOCOL in offered:
            await PortForward(websocket, connect, target).serve()
        elif CHANNELS in offered:
            try:
                ports = ports_of(websocket.query_params.getlist("ports"))
            except ValueError as error:
                await websockets.deny(websocket, BadRequest(str(error)))
            else:
                await PortChannels(websocket, connect, target, ports).serve()
        else:
            refusal = f"unable to upgrade: neither {PROTOCOL} nor {CHANNELS} is requested"
            await websockets.deny(websocket, BadRequest(refusal))

    async def _container_logs(self, request: Request) -> Response:
        key, machine = self._machine(request.path_params)
        container = request.path_params["container"]
        if container not in {COMPUTE, CONSOLE_LOG}:
            return PlainTextResponse("")  # other containers write no logs
        options = _LogOptions(request.query_params)
        if options.previous:
            raise BadRequest(
                f'previous terminated container "{container}" in pod "{key.name}" not found'
            )
        chunks = self._read(machine, options)
        return StreamingResponse(options.limited(chunks), media_type="text/plain")

    async def _read(self, machine: Machine, options: "_LogOptions") -> AsyncIterator[bytes]:
        directory = machine.directory
        self._logs.follow(directory)
        timestamps = (
            _Timestamps(partial(self._logs.written_at, directory)) if options.timestamps else None
        )
        with self._logs.changes(directory) as changed:
            kept = await asyncio.to_thread(
                self._logs.kept, directory, lines=options.tail_lines, since=options.since
            )
            offset = kept.offset
            yield timestamps.add(kept.content, offset) if timestamps else kept.content
            if options.follow:
                end = offset + len(kept.content)
                ended = partial(_has_ended, machine)
                async for offset, chunk in self._logs.grown(directory, end, changed, ended):
                    yield timestamps.add(chunk, offset) if timestamps else chunk


def _has_ended(machine: Machine) -> bool:
    return machine.facts.ended


class _LogOptions:
    """The options of a log request (core/v1 PodLogOptions)."""

    def __init__(self, query: Mapping[str, str]) -> None:
        self.follow = query.get("follow") == "true"
        self.previous = query.get("previous") == "true"
        self.timestamps = query.get("timestamps") == "true"
        self.tail_lines = _count(query, "tailLines")
        self.limit_bytes = _count(query, "limitBytes")
        self.since = _since(query)

    async def limited(self, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """Iterate over the chunks, up to ``limitBytes``."""
        left = self.limit_bytes
        async for chunk in chunks:
            piece = chunk
            if left is not None:
                piece = piece[:left]
                left -= len(piece)
            yield piece
            if left == 0:
                return


class _Timestamps:
    """Prefixes each line with the time at which it was written."""

    def __init__(self, written_at: Callable[[int], float]) -> None:
        self._written_at = written_at
        self._at_start = True

    def add(self, chunk: bytes, offset: int) -> bytes:
        """Return the next chunk, which is at this offset of the log, with timestamps."""
        stamped = []
        for line in chunk.splitlines(keepends=True) if chunk else ():
            if self._at_start:
                moment = datetime.fromtimestamp(self._written_at(offset), UTC)
                stamped.append(moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ ").encode())
            stamped.append(line)
            self._at_start = line.endswith(b"\n")
            offset += len(line)
        return b"".join(stamped)


def _since(query: Mapping[str, str]) -> float | None:
    """Return the moment from which on to show the log, in seconds since 1970; None for all."""
    seconds, moment = _count(query, "sinceSeconds"), query.get("sinceTime")
    if seconds is not None and moment is not None:
        raise BadRequest("at most one of sinceTime or sinceSeconds may be specified")
    if seconds == 0:
        raise BadRequest("sinceSeconds: must be greater than 0")
    if seconds is not None:
        return time.time() - seconds
    if moment is None:
        return None
    try:
        return parse_rfc3339(moment).timestamp()
    except (ValueError, OverflowError) as error:
        raise BadRequest(f"sinceTime: {moment[:50]!r} is not an RFC 3339 time") from error


def _count(query: Mapping[str, str], name: str) -> int | None:
    text = query.get(name)
    if text is None:
        return None
    if not text.isdecimal() or len(text) > 18:
        raise BadRequest(f'{name}: "{text}" is not a non-negative number')
    return int(text)
