"""``kubectl exec``: a command in the guest, run by the guest agent.

The websocket carries channels (subprotocols v5.channel.k8s.io and v4.channel.k8s.io): the first
byte of each message is its channel, and a Status on channel 3 reports how the command ended.  SPDY
streams are converted to that (``spdy_channels``).  The agent reads the command's input as a whole
and returns its output at the end, so nothing is streamed while it runs, and there is no terminal.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress

import msgspec
from starlette.websockets import WebSocket, WebSocketDisconnect

from corral.aio import Background
from corral.api.errors import ApiError, BadRequest, InternalError
from corral.api.object import Document
from corral.node.hypervisor import Finished, GuestError
from corral.node.kubelet import websockets
from corral.node.kubelet.exec_options import ExecOptions
from corral.node.machine.lifecycle import Machine

PROTOCOLS = ("v5.channel.k8s.io", "v4.channel.k8s.io")
"""The supported ones, best first; only v5 can signal the end of input."""
LARGEST_INPUT_BYTES = 4 << 20

_INPUT, _OUTPUT, _ERRORS, _STATUS, _CLOSE = 0, 1, 2, 3, 255
_PIECE_BYTES = 64 * 1024


async def execute(websocket: WebSocket, machine: Machine) -> None:
    """Run one command, given by the query (``exec_options``)."""
    offered = websocket.scope.get("subprotocols") or []
    protocol = next((one for one in PROTOCOLS if one in offered), None)
    if protocol is None:
        refusal = BadRequest(f"unable to upgrade: none of {', '.join(PROTOCOLS)} is requested")
        await websockets.deny(websocket, refusal)
        return
    with suppress(WebSocketDisconnect, RuntimeError):  # the client may disconnect at any moment
        await websocket.accept(subprotocol=protocol)
        try:
            result = await _run_to_end(websocket, machine, protocol)
        except ApiError as error:
            await _send_status(websocket, error.status())
        else:
            if result is None:
                return
            await _send(websocket, _OUTPUT, result.output)
            await _send(websocket, _ERRORS, result.errors)
            await _send_status(websocket, exit_status(result.exit_code))
        await websockets.close(websocket)


def exit_status(exit_code: int) -> Document:
    """Return the Status of a command that has ended, as a kubelet writes it."""
    status: Document = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
    if exit_code:
        status |= {
            "status": "Failure",
            "reason": "NonZeroExitCode",
            "message": f"command terminated with non-zero exit code: exit status {exit_code}",
            "details": {"causes": [{"reason": "ExitCode", "message": str(exit_code)}]},
        }
    return status


async def _run_to_end(websocket: WebSocket, machine: Machine, protocol: str) -> Finished | None:
    """Run the command; None if the client has disconnected.  Raises ApiError."""
    options = ExecOptions.of(websocket.query_params)
    record = machine.record
    console = f"corral console {record.instance} -n {record.namespace}"
    if not options.command:
        raise BadRequest("you must specify at least 1 command for the container")
    if options.tty:
        raise BadRequest(
            "there is no terminal: commands are run by the guest's agent, one at a time; "
            f"leave -t out, or open the console: {console}"
        )
    if machine.facts.paused:
        raise BadRequest(f"{record.instance} is paused: nothing runs in it")
    if not machine.facts.agent_connected:
        raise BadRequest(
            f"no guest agent is connected in {record.instance}, and commands are run by it; "
            f"its console opens with: {console}"
        )
    typed = b""
    if options.stdin:
        if protocol != PROTOCOLS[0]:
            raise BadRequest(f"input needs the subprotocol {PROTOCOLS[0]}, which signals its end")
        content = await _input(websocket)
        if content is None:
            return None
        typed = content
    result = await _while_connected(websocket, machine, options.command, typed)
    if isinstance(result, GuestError):
        raise InternalError(f"Internal error occurred: {result}") from result
    return result


async def _while_connected(
    websocket: WebSocket, machine: Machine, command: Sequence[str], typed: bytes
) -> Finished | GuestError | None:
    """Run a command for as long as the client is connected."""
    async with Background() as tasks:
        gone = tasks.start(_gone(websocket), name="client")
        ran = tasks.start(_run(machine, command, typed), name="command")
        await asyncio.wait({gone, ran}, return_when=asyncio.FIRST_COMPLETED)
        return ran.result() if ran.done() else None


async def _run(machine: Machine, command: Sequence[str], typed: bytes) -> Finished | GuestError:
    try:
        return await machine.guest.agent.run(command, typed)
    except GuestError as error:
        return error


async def _gone(websocket: WebSocket) -> None:
    while await websockets.receive(websocket) is not None:
        pass  # late input, and sizes of a terminal that does not exist


async def _input(websocket: WebSocket) -> bytes | None:
    """Return all input, to its end; None if the client disconnects before.  Raises BadRequest."""
    typed = bytearray()
    while (message := await websockets.receive(websocket)) is not None:
        if message[0] == _CLOSE and message[1:] == bytes([_INPUT]):
            return bytes(typed)
        if message[0] == _INPUT:
            typed += message[1:]
        if len(typed) > LARGEST_INPUT_BYTES:
            raise BadRequest(f"input is limited to {LARGEST_INPUT_BYTES} bytes: use corral scp")
    return None


async def _send(websocket: WebSocket, channel: int, content: bytes) -> None:
    for at in range(0, len(content), _PIECE_BYTES):
        await websocket.send_bytes(bytes([channel]) + content[at : at + _PIECE_BYTES])


async def _send_status(websocket: WebSocket, status: Document) -> None:
    await websocket.send_bytes(bytes([_STATUS]) + msgspec.json.encode(status))
