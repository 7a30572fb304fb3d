"""The endpoints of VMIs: console, screen, ports, guest agent queries, and actions.

The API server has authorised the client, and checked the VMI's status.  What only the node knows is
checked here, before a websocket is accepted.
"""

from collections.abc import Awaitable, Callable, Mapping
from functools import partial

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.websockets import WebSocket

from corral.api.errors import BadRequest, Conflict, InternalError
from corral.api.object import Document, Key
from corral.failures import describe
from corral.node.guest.filesystem_freeze import Freezer
from corral.node.hypervisor import GuestAgent, GuestError
from corral.node.kubelet import websockets
from corral.node.kubelet.console import Consoles, Occupied
from corral.node.machine.lifecycle import Machine
from corral.node.network.guest_ports import Ports
from corral.node.streams import StreamLine

_API_VERSION = "kubevirt.io/v1"
_NAMED = "{namespace}/{name}/{uid}"


class VmiEndpoints:
    """Routes to the machines of a node, by VMI.

    ``machine_of`` finds a machine.
    """

    def __init__(
        self,
        machine_of: Callable[[Key, str], Machine | None],
        ports: Ports,
    ) -> None:
        self._machine_of = machine_of
        self._ports = ports
        self._consoles = Consoles()
        self.freezer = Freezer()

    def routes(self) -> list[BaseRoute]:
        queries = {
            "guestosinfo": _guest_info,
            "userlist": _user_list,
            "filesystemlist": _filesystem_list,
        }
        actions: Mapping[str, Callable[[Machine, Request], Awaitable[None]]] = {
            "pause": lambda machine, _: machine.pause(),
            "unpause": lambda machine, _: machine.unpause(),
            "softreboot": lambda machine, _: machine.guest.reboot(),
            "reset": lambda machine, _: machine.guest.reset(),
            "freeze": self._freeze,
            "unfreeze": self._thaw,
        }
        return [
            WebSocketRoute(f"/console/{_NAMED}", self._console),
            WebSocketRoute(f"/vnc/{_NAMED}", self._screen),
            WebSocketRoute(f"/portforward/{_NAMED}/{{port:int}}/{{protocol}}", self._port),
            Route(f"/vnc/screenshot/{_NAMED}", self._screenshot),
            *(
                Route(f"/{name}/{_NAMED}", partial(self._query, one))
                for name, one in queries.items()
            ),
            *(
                Route(f"/{name}/{_NAMED}", partial(self._act, action), methods=["PUT"])
                for name, action in actions.items()
            ),
        ]

    async def connect(self, machine: Machine, port: int) -> StreamLine:
        """Open a TCP port of a machine.  Raises GuestError."""
        return await self._ports.tcp(machine.facts.address, port)

    async def _machine(self, parameters: Mapping[str, str]) -> Machine:
        key = Key(parameters["namespace"], parameters["name"])
        machine = self._machine_of(key, parameters["uid"])
        if machine is not None:
            await machine.synced()
        if machine is None or machine.facts.ended:
            raise BadRequest("VMI is not running")
        return machine

    # -- streams

    async def _console(self, websocket: WebSocket) -> None:
        await self._serve_session(websocket, "console", lambda machine: machine.guest.console())

    async def _screen(self, websocket: WebSocket) -> None:
        await self._serve_session(websocket, "screen", lambda machine: machine.guest.screen())

    async def _serve_session(
        self, websocket: WebSocket, kind: str, connect: Callable[[Machine], Awaitable[StreamLine]]
    ) -> None:
        preserve = websocket.query_params.get("preserveSession") == "true"
        try:
            machine = await self._machine(websocket.path_params)
            await self._consoles.join(
                f"{kind} of {machine.record.uid}",
                websocket,
                lambda: connect(machine),
                displace=not preserve,
            )
        except BadRequest as error:
            await websockets.deny(websocket, error)
        except (GuestError, TimeoutError) as error:
            await websockets.deny(websocket, BadRequest(f"VMI is not running: {describe(error)}"))
        except Occupied:
            await websockets.deny(websocket, Conflict("Active VNC connection. Request denied."))

    async def _port(self, websocket: WebSocket) -> None:
        parameters = websocket.path_params
        try:
            address = (await self._machine(parameters)).facts.address
            line = await self._ports.open(address, parameters["port"], parameters["protocol"])
        except BadRequest as error:
            await websockets.deny(websocket, error)
            return
        except GuestError as error:
            await websockets.deny(websocket, _failed(f"dialing VM: {error}"))
            return
        try:
            await websocket.accept(subprotocol=websockets.PLAIN)
            end = line.end if isinstance(line, StreamLine) else None
            await websockets.carry(websocket, line, end=end)
            await websockets.close(websocket)
            if isinstance(line, StreamLine):
                await line.finish()
        finally:
            line.close()

    # -- queries

    async def _query(
        self, query: Callable[[GuestAgent], Awaitable[Document]], request: Request
    ) -> Response:
        try:
            document = await query((await self._machine(request.path_params)).guest.agent)
        except GuestError as error:
            raise _failed(str(error)) from error
        return JSONResponse(document)

    async def _screenshot(self, request: Request) -> Response:
        move_cursor = request.query_params.get("moveCursor") == "true"
        try:
            guest = (await self._machine(request.path_params)).guest
            picture = await guest.screenshot(move_cursor=move_cursor)
        except GuestError as error:
            raise _failed(str(error)) from error
        return Response(picture, media_type="image/png")

    # -- actions

    async def _act(
        self, action: Callable[[Machine, Request], Awaitable[None]], request: Request
    ) -> Response:
        machine = await self._machine(request.path_params)
        await machine.checkpoint.idle.wait()
        if machine.facts.saving:
            raise Conflict("the memory of the VMI is being saved: retry if it does not end")
        try:
            await action(machine, request)
        except GuestError as error:
            raise _failed(str(error)) from error
        return Response()

    async def _freeze(self, machine: Machine, request: Request) -> None:
        seconds = float(request.query_params.get("seconds", "0"))
        await self.freezer.freeze(machine, seconds)

    async def _thaw(self, machine: Machine, _: Request) -> None:
        await self.freezer.thaw(machine)


async def _guest_info(agent: GuestAgent) -> Document:
    kind = {"apiVersion": _API_VERSION, "kind": "VirtualMachineInstanceGuestAgentInfo"}
    return {**kind, **await agent.describe()}


async def _user_list(agent: GuestAgent) -> Document:
    kind = {"apiVersion": _API_VERSION, "kind": "VirtualMachineInstanceGuestOSUserList"}
    return {**kind, "metadata": {}, "items": await agent.users()}


async def _filesystem_list(agent: GuestAgent) -> Document:
    kind = {"apiVersion": _API_VERSION, "kind": "VirtualMachineInstanceFileSystemList"}
    return {**kind, "metadata": {}, "items": await agent.filesystems()}


def _failed(why: str) -> InternalError:
    return InternalError(f"Internal error occurred: {why}")
