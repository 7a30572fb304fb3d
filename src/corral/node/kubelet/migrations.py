"""The migrations of a host, as the agents of other hosts reach them.

    GET /corral/migrations?migration=UID&stream=control             websocket: commands and reports
    GET /corral/migrations?migration=UID&stream=memory              websocket: the guest's memory
    GET /corral/migrations?migration=UID&stream=disk&volume=NAME    websocket: NBD, for that disk
    GET /corral/migrations?migration=UID&vmi=UID                    files of the source, in JSON
    GET /corral/migrations?migration=UID&vmi=UID&file=NAME          one of them

The API server, or the node's own port, has authenticated the caller, and permitted it the path.
What is decided here is which migration: streams come from the node that the VMI's
``status.migrationState`` names as its source, and files go to the one that it names as its target.
"""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import suppress

import msgspec
from starlette.requests import Request
from starlette.responses import FileResponse, PlainTextResponse, Response
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket, WebSocketDisconnect

from corral.aio import Background, Signal
from corral.api.encoding import decode_as
from corral.api.errors import ApiError, BadRequest, Forbidden, NotFound
from corral.api.kinds.auth.certificate_signing_request import NODE_USER_PREFIX
from corral.api.kinds.vmi.migration_status import MigrationState
from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.api.object import Key
from corral.client.client import Client
from corral.client.stream import StreamLost
from corral.failures import describe
from corral.node.hypervisor import GuestError
from corral.node.images.image import Image
from corral.node.kubelet import websockets
from corral.node.machine.migration import source_files
from corral.node.machine.migration.channel import Channel, relay
from corral.node.machine.migration.messages import Command, obey, report_of
from corral.node.machine.migration.remote_targets import CONTROL, DISK, MEMORY
from corral.node.machine.migration.targets import LocalTarget, MigrationTargets
from corral.node.state import machine_record as records


class MigrationServer:
    """An ASGI app that serves the targets and the sources of a host.

    client: reads VMIs; images: returns the images of this host.
    """

    def __init__(
        self, client: Client, targets: MigrationTargets, images: Callable[[], Sequence[Image]]
    ) -> None:
        self._client = client
        self._targets = targets
        self._images = images
        self._replaced: dict[str, Signal] = {}
        """Set when a target's control stream ends for a later one; by its migration."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await self._stream(WebSocket(scope, receive, send))
            return
        try:
            response = await self._file(Request(scope, receive))
        except ApiError as error:
            response = PlainTextResponse(error.message, error.code)
        await response(scope, receive, send)

    async def _stream(self, websocket: WebSocket) -> None:
        """Serve a stream to a target, from its source."""
        query = websocket.query_params
        migration = query.get("migration", "")
        try:
            target = await self._target(migration, _caller(websocket.scope))
            line = await _line(query, target)
        except (ApiError, GuestError) as error:
            refusal = error if isinstance(error, ApiError) else BadRequest(describe(error))
            await websockets.deny(websocket, refusal)
            return
        try:
            await websocket.accept(subprotocol=websockets.PLAIN)
            if line is None:
                await self._control(_Accepted(websocket), target, migration)
            else:
                await relay(_Accepted(websocket), line)
                with suppress(OSError):  # closing it would not do: QEMU holds this end, too
                    line.shutdown(socket.SHUT_RDWR)
            await websockets.close(websocket)
        finally:
            if line is not None:
                line.close()

    async def _control(self, channel: Channel, target: LocalTarget, migration: str) -> None:
        """Report a target to its source, and obey that, until the last report or the source's end.

        Or until a later one: the connection of a source whose host was lost may linger.
        """
        if (former := self._replaced.get(migration)) is not None:
            former.set()
        replaced = self._replaced[migration] = Signal()
        try:
            async with Background() as tasks:
                ends = {
                    tasks.start(_obey(channel, target), name="commands"),
                    tasks.start(_report(channel, target), name="reports"),
                    tasks.start(replaced.wait(), name="replaced"),
                }
                await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        finally:
            if self._replaced.get(migration) is replaced:
                del self._replaced[migration]

    async def _target(self, migration: str, caller: str) -> LocalTarget:
        """Return a target on this host.  Raises ApiError, Forbidden unless its source calls."""
        if (target := self._targets.find(migration)) is None:
            raise NotFound("this node has no target for this migration")
        state = await self._state(target.vmi, target.uid, migration)
        _require(caller, state.source_node)
        return target

    async def _file(self, request: Request) -> Response:
        """Send a file of a source to its target, or the list of them.  Raises ApiError."""
        query = request.query_params
        directory = self._targets.directories.get(query.get("vmi", ""))
        record = await asyncio.to_thread(records.read, directory) if directory is not None else None
        if directory is None or record is None:
            raise NotFound("this node has no source for this migration")
        vmi = Key(record.namespace, record.instance)
        state = await self._state(vmi, record.uid, query.get("migration", ""))
        _require(_caller(request.scope), state.target_node)
        if "file" not in query:
            found = await asyncio.to_thread(source_files.listed, directory, self._images)
            return Response(msgspec.json.encode(found), media_type="application/json")
        for each in source_files.files_of(directory):
            if each.name == query["file"]:
                return FileResponse(each, media_type="application/octet-stream")
        raise NotFound("the source has no such file")

    async def _state(self, key: Key, uid: str, migration: str) -> MigrationState:
        """Return the state of a migration that is not over.  Raises ApiError."""
        vmi = await self._client.get(VirtualMachineInstance, key.name, key.namespace)
        state = vmi.status.migration_state
        is_its = state is not None and state.migration_uid == migration
        if state is None or not is_its or vmi.metadata.uid != uid or state.failed:
            raise NotFound(f"VMI {key} does not migrate by {migration}")
        return state


def _caller(scope: Scope) -> str:
    caller: str = scope.get("state", {}).get("user", "")
    return caller


def _require(caller: str, node: str) -> None:
    """Raise Forbidden unless a node calls, or the API server: for the nodes of its own process."""
    if caller.startswith(NODE_USER_PREFIX) and caller != f"{NODE_USER_PREFIX}{node}":
        raise Forbidden(f"{caller} is not on this side of the migration: node {node} is")


async def _line(query: Mapping[str, str], target: LocalTarget) -> socket.socket | None:
    """Open the socket of a stream; the control stream has none.  Raises GuestError, BadRequest."""
    stream = query.get("stream")
    if stream == MEMORY:
        return await target.open_remote_memory()
    if stream == DISK:
        return await target.open_disk(query.get("volume", ""))
    if stream != CONTROL:
        raise BadRequest(f"stream: must be {CONTROL}, {MEMORY} or {DISK}")
    return None


async def _report(channel: Channel, target: LocalTarget) -> None:
    sent = None
    while sent is None or not sent.is_last:
        if (report := report_of(target)) == sent:
            await target.notified()
            continue
        sent = report
        try:
            await channel.send(msgspec.json.encode(report))
        except StreamLost:
            return


async def _obey(channel: Channel, target: LocalTarget) -> None:
    """Obey commands to the end of the channel."""
    async for message in channel:
        try:
            command = decode_as(message, Command)
        except msgspec.DecodeError:
            return
        await obey(target, command)


class _Accepted:
    """An accepted websocket as a ``Channel``."""

    def __init__(self, websocket: WebSocket) -> None:
        self._websocket = websocket

    async def send(self, data: bytes) -> None:
        try:
            await self._websocket.send_bytes(data)
        except (WebSocketDisconnect, RuntimeError) as error:
            raise StreamLost("") from error

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while (data := await websockets.message(self._websocket)) is not None:
            yield data
