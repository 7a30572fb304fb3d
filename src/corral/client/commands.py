"""Commands in a machine: ``pods/exec``, which the guest agent carries out.

The subprotocol is v5.channel.k8s.io: the first byte of a message is its channel, and a Status on
channel 3 reports how the command has ended.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlencode

import msgspec
from websockets.typing import Subprotocol

from corral.api.errors import InternalError
from corral.api.object import Document, Key
from corral.client.decoding import error_from
from corral.client.kubeconfig import Kubeconfig
from corral.client.stream import Stream

PROTOCOL: Final = Subprotocol("v5.channel.k8s.io")
CONTAINER: Final = "compute"
"""The container of a launcher pod that is the machine."""

_INPUT, _OUTPUT, _ERRORS, _STATUS, _CLOSE = 0, 1, 2, 3, 255
_PIECE_BYTES: Final = 64 << 10


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandResult:
    """The result of a command: its exit code, and what it has written to both outputs."""

    exit_code: int
    output: bytes = b""
    errors: bytes = b""


async def run(
    config: Kubeconfig, pod: Key, command: Sequence[str], typed: bytes = b""
) -> CommandResult:
    """Run a command in the machine of a pod; ``typed`` is its input.

    Raises ApiError, and StreamLost if the connection breaks before the command has ended.
    """
    query = [("container", CONTAINER), ("stdout", "true"), ("stderr", "true")]
    if typed:
        query.append(("stdin", "true"))
    query += [("command", word) for word in command]
    server = config.server.removeprefix("https")
    path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}/exec?{urlencode(query)}"
    async with Stream.open(
        f"wss{server}{path}", headers=config.headers, tls=config.tls(), protocol=PROTOCOL
    ) as stream:
        if typed:
            await _send_input(stream, typed)
        received: dict[int, bytearray] = {}
        async for message in stream:
            if message:
                received.setdefault(message[0], bytearray()).extend(message[1:])
    return CommandResult(
        exit_code=_exit_code(bytes(received.get(_STATUS, b""))),
        output=bytes(received.get(_OUTPUT, b"")),
        errors=bytes(received.get(_ERRORS, b"")),
    )


async def _send_input(stream: Stream, typed: bytes) -> None:
    for at in range(0, len(typed), _PIECE_BYTES):
        await stream.send(bytes([_INPUT]) + typed[at : at + _PIECE_BYTES])
    await stream.send(bytes([_CLOSE, _INPUT]))


def _exit_code(encoded: bytes) -> int:
    """Return the exit code in a Status.  Raises ApiError if the command did not run."""
    if not encoded:
        raise InternalError("the command's connection has ended without its status")
    status: Document = msgspec.json.decode(encoded)
    if status.get("status") == "Success":
        return 0
    for cause in (status.get("details") or {}).get("causes") or ():
        if cause.get("reason") == "ExitCode":
            return int(cause["message"])
    raise error_from(encoded, int(status.get("code") or 500))
