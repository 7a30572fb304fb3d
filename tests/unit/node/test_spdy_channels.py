"""Commands over SPDY streams, as kubectl before 1.31 runs them."""

from contextlib import ExitStack

import msgspec
import pytest
from starlette.websockets import WebSocketDisconnect
from tests.unit.node.test_portforward import EXEC, client, machine

from corral.node import spdy, spdy_channels
from corral.node.hypervisor import Finished
from corral.node.spdy import Data, Ping, Reset
from corral.node.spdy_channels import PROTOCOL

__all__ = ["client", "machine"]


class Command:
    """The client's side of a command: its streams, and what came on each."""

    def __init__(self, websocket):
        self.websocket = websocket
        self.writer, self.reader = spdy.Writer(), spdy.Reader()
        self.streams = {}

    def open(self, *names):
        for name in names:
            stream = self.streams[name] = 2 * len(self.streams) + 1
            self.send(self.writer.open(stream, {"streamtype": name}))

    def send(self, packet):
        self.websocket.send_bytes(packet)

    def type(self, content, *, last=False):
        self.send(spdy.data(self.streams["stdin"], content, last=last))

    def frames(self):
        """All that comes until the connection ends, but replies."""
        found = []
        while True:
            try:
                found += self.reader.feed(self.websocket.receive_bytes())
            except WebSocketDisconnect:
                return found

    def said(self):
        """What came on each stream; each one has ended."""
        frames = [frame for frame in self.frames() if isinstance(frame, Data)]
        assert {frame.stream for frame in frames if frame.last} == set(self.streams.values())
        return {
            name: b"".join(frame.data for frame in frames if frame.stream == stream)
            for name, stream in self.streams.items()
        }


@pytest.fixture
def command(client):
    def connect(query, protocols=(PROTOCOL,)):
        websocket = stack.enter_context(
            client.websocket_connect(f"{EXEC}?{query}", subprotocols=list(protocols))
        )
        assert websocket.accepted_subprotocol == PROTOCOL
        return Command(websocket)

    with ExitStack() as stack:
        yield connect


def test_a_command_speaks_on_its_streams(command, machine):
    machine.guest.agent.answer = Finished(exit_code=3, output=b"x" * 200_000, errors=b"oh")
    running = command(
        "command=ls&stdout=true&stderr=true", ["SPDY/3.1+v3.channel.k8s.io", PROTOCOL]
    )
    running.open("error", "stdout", "stderr")
    said = running.said()
    assert (len(said["stdout"]), said["stderr"]) == (200_000, b"oh")
    assert msgspec.json.decode(said["error"])["details"]["causes"][0]["message"] == "3"


def test_input_is_read_to_the_end_of_its_stream(command, machine):
    running = command("command=cat&stdin=true&stdout=true")
    running.open("error", "stdin")
    running.type(b"typed before all is open, ")
    running.open("stdout")
    running.type(b"and after")
    running.type(b"", last=True)
    assert msgspec.json.decode(running.said()["error"])["status"] == "Success"
    assert machine.guest.agent.ran == [(["cat"], b"typed before all is open, and after")]


def test_a_refusal_is_told_on_the_stream_for_errors(command, machine):
    running = command("command=sh&stdout=true&stderr=true&tty=true")
    running.open("error", "stdout")
    assert "there is no terminal" in msgspec.json.decode(running.said()["error"])["message"]
    assert not machine.guest.agent.ran


def test_streams_that_nobody_knows_are_reset_and_pings_answered(command):
    running = command("command=ls")
    running.open("music")
    running.send(spdy.ping(7))
    running.open("error")
    found = running.frames()
    assert found[:2] == [Reset(1), Ping(7)]


def test_who_opens_no_streams_is_not_waited_for(command, monkeypatch, machine):
    monkeypatch.setattr(spdy_channels, "OPENING_SECONDS", 0.05)
    assert command("command=ls").frames() == []
    assert machine.guest.agent.ran == [(["ls"], b"")]


def test_what_is_no_spdy_ends_the_connection(command, machine):
    running = command("command=cat&stdin=true")
    running.open("error", "stdin")
    running.send(b"\x80\x09" + bytes(20))
    assert [frame for frame in running.frames() if frame.stream == 3] == []
    assert not machine.guest.agent.ran
