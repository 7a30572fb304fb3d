"""Commands in a machine, over the channels of ``pods/exec``."""

import json
import socket

import pytest
from starlette.websockets import WebSocket

from corral import pki
from corral.api.errors import ApiError
from corral.api.object import Key
from corral.client import commands
from corral.client.kubeconfig import Kubeconfig
from corral.server.transport.listener import listening_on, tls_context

POD = Key("default", "virt-launcher-a")
SUCCESS = {"status": "Success"}
FAILURE = {
    "status": "Failure",
    "reason": "NonZeroExitCode",
    "details": {"causes": [{"reason": "ExitCode", "message": "3"}]},
}
REFUSAL = {"kind": "Status", "status": "Failure", "message": "it is paused", "code": 400}


class Node:
    """Answers each command with its own words and input, and ``status``."""

    def __init__(self):
        self.status = SUCCESS
        self.query = {}

    async def __call__(self, scope, receive, send):
        line = WebSocket(scope, receive, send)
        self.query = line.query_params
        await line.accept(subprotocol="v5.channel.k8s.io")
        typed = b""
        while "stdin" in self.query and (message := await line.receive_bytes()) != b"\xff\x00":
            assert message[:1] == b"\x00"
            typed += message[1:]
        words = " ".join(self.query.getlist("command")).encode()
        for piece in (b"\x01" + words, b"\x01|" + typed, b"\x02note"):
            await line.send_bytes(piece)
        if self.status is not None:
            await line.send_bytes(b"\x03" + json.dumps(self.status).encode())
        await line.close()


@pytest.fixture
def node():
    return Node()


@pytest.fixture
async def config(node, tmp_path):
    identity = pki.ensure(tmp_path / "pki")
    tls = tls_context(identity.certificate, identity.key)
    bound = socket.socket()
    bound.bind(("127.0.0.1", 0))
    async with listening_on(node, bound, tls):
        server = f"https://127.0.0.1:{bound.getsockname()[1]}"
        yield Kubeconfig(server=server, authority=identity.authority.read_text())


async def test_a_command_returns_its_outputs(node, config):
    result = await commands.run(config, POD, ["echo", "a b"])
    assert (result.exit_code, result.output, result.errors) == (0, b"echo a b|", b"note")
    assert node.query["container"] == "compute"


async def test_input_is_sent_to_its_end(config):
    typed = bytes(range(256)) * 1000
    result = await commands.run(config, POD, ["cat"], typed)
    assert result.output == b"cat|" + typed


async def test_a_command_that_fails_returns_its_exit_code(node, config):
    node.status = FAILURE
    assert (await commands.run(config, POD, ["false"])).exit_code == 3


@pytest.mark.parametrize(
    ("status", "message"), [(REFUSAL, "it is paused"), (None, "ended without its status")]
)
async def test_a_command_that_did_not_run_is_an_error(node, config, status, message):
    node.status = status
    with pytest.raises(ApiError, match=message):
        await commands.run(config, POD, ["true"])
