"""Commands over SPDY streams, as kubectl before 1.31 runs them."""

import asyncio
import threading
from contextlib import ExitStack
from dataclasses import replace

import msgspec
import pytest
from hypothesis import given, settings, strategies as st
from starlette.testclient import WebSocketDenialResponse
from starlette.websockets import WebSocketDisconnect
from tests.unit.node.kubelet.test_portforward import EXEC, client, machine

from corral.node.hypervisor import Finished
from corral.node.kubelet import spdy, spdy_channels
from corral.node.kubelet.spdy import Data, Ping, Reset
from corral.node.kubelet.spdy_channels import LARGEST_EARLY_BYTES, PROTOCOLS

__all__ = ["client", "machine"]

V5, V4, V3, V2, V1 = PROTOCOLS
NONSENSE = b"\x80\x09" + bytes(20)
"""A frame of another SPDY."""


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
    def connect(query, protocols=(V4, V3)):
        websocket = stack.enter_context(
            client.websocket_connect(f"{EXEC}?{query}", subprotocols=list(protocols))
        )
        known = [protocol for protocol in protocols if protocol in PROTOCOLS]
        assert websocket.accepted_subprotocol == known[0], "the client's order counts"
        return Command(websocket)

    with ExitStack() as stack:
        yield connect


@pytest.mark.parametrize("protocol", [V5, V4])
def test_a_command_uses_its_streams(command, machine, protocol):
    machine.guest.agent.answer = Finished(exit_code=3, output=b"x" * 200_000, errors=b"oh")
    running = command(
        "command=ls&stdout=true&stderr=true", ["SPDY/3.1+v9.channel.k8s.io", protocol, V2]
    )
    running.open("error", "stdout", "stderr")
    said = running.said()
    assert (len(said["stdout"]), said["stderr"]) == (200_000, b"oh")
    assert msgspec.json.decode(said["error"])["details"]["causes"][0]["message"] == "3"


@pytest.mark.parametrize("protocol", [V3, V2, V1])
@pytest.mark.parametrize(
    ("code", "text"), [(0, b""), (3, b"command terminated with non-zero exit code: exit status 3")]
)
def test_older_protocols_report_the_end_as_text(command, machine, protocol, code, text):
    machine.guest.agent.answer = Finished(exit_code=code, output=b"out")
    running = command("command=ls&stdout=true", [protocol])
    running.open("error", "stdout")
    assert running.said() == {"error": text, "stdout": b"out"}


def test_unknown_protocols_are_rejected_before_the_upgrade(client, machine):
    with (
        pytest.raises(WebSocketDenialResponse) as refused,
        client.websocket_connect(f"{EXEC}?command=ls", subprotocols=["SPDY/3.1+v9.channel.k8s.io"]),
    ):
        pass
    assert refused.value.status_code == 400
    assert not machine.guest.agent.ran


def test_input_is_read_to_the_end_of_its_stream(command, machine):
    running = command("command=cat&stdin=true&stdout=true")
    running.open("error", "stdin")
    running.type(b"typed before all is open, ")
    running.open("stdout")
    running.type(b"and after")
    running.type(b"", last=True)
    assert msgspec.json.decode(running.said()["error"])["status"] == "Success"
    assert machine.guest.agent.ran == [(["cat"], b"typed before all is open, and after")]


def test_a_refusal_waits_for_the_streams_that_kube_apiserver_names(command, machine):
    machine.facts = replace(machine.facts, agent_connected=False)
    running = command("command=ls&input=1&output=1&error=1")
    running.open("error")
    running.open("stdin", "stdout", "stderr")
    assert "no guest agent is connected" in running.said()["error"].decode()


def test_input_comes_by_kube_apiservers_names(command, machine):
    running = command("command=cat&input=1&output=1")
    running.open("error", "stdin", "stdout")
    running.type(b"typed", last=True)
    assert msgspec.json.decode(running.said()["error"])["status"] == "Success"
    assert machine.guest.agent.ran == [(["cat"], b"typed")]


def test_a_stream_can_be_opened_with_fin(command, machine):
    running = command("command=cat&stdin=true")
    running.open("error")
    headers = running.writer.open(3, {"streamtype": "stdin"})
    running.send(headers[:4] + b"\1" + headers[5:])  # FIN, among the flags
    assert {frame.stream for frame in running.frames()} == {1, 3}
    assert machine.guest.agent.ran == [(["cat"], b"")]


def test_too_much_input_is_reported(command, machine, monkeypatch):
    monkeypatch.setattr("corral.node.kubelet.exec_command.LARGEST_INPUT_BYTES", 1000)
    running = command("command=cat&stdin=true")
    running.open("error", "stdin")
    running.type(bytes(1001))
    assert "limited to 1000 bytes" in msgspec.json.decode(running.said()["error"])["message"]
    assert not machine.guest.agent.ran


@pytest.mark.parametrize(
    ("protocol", "streams"),
    [
        (V4, ["error", "stdout", "resize"]),
        (V3, ["resize", "stdout", "error"]),
        (V2, ["error", "stdout"]),
    ],
)
def test_a_terminal_is_rejected_once_its_streams_are_open(command, machine, protocol, streams):
    running = command("command=sh&stdout=true&stderr=true&tty=true", [protocol])
    running.open(*streams)
    if "resize" in streams:
        running.send(spdy.data(running.streams["resize"], b'{"Width":80,"Height":24}'))
    assert b"there is no terminal" in running.said()["error"]
    assert not machine.guest.agent.ran


def test_unknown_streams_are_reset_and_pings_answered(command):
    running = command("command=ls&stdout=true")
    running.open("music", "stdout")
    running.send(running.writer.open(5, {"streamtype": "stdout"}))
    running.send(running.writer.open(7, {}))
    running.send(spdy.ping(7))
    running.send(running.writer.open(9, {"streamtype": "error"}))
    found = running.frames()
    assert found[:4] == [Reset(1), Reset(5), Reset(7), Ping(7)]


def test_without_streams_nothing_runs(command, monkeypatch, machine):
    monkeypatch.setattr(spdy_channels, "OPENING_SECONDS", 0.05)
    assert command("command=ls&stdout=true").frames() == []
    assert not machine.guest.agent.ran


def test_a_client_that_closes_before_all_streams_runs_nothing(client, machine):
    with client.websocket_connect(f"{EXEC}?command=ls", subprotocols=[V4]):
        pass
    assert not machine.guest.agent.ran


def test_buffered_input_is_limited_before_all_streams_are_open(command, machine):
    running = command("command=cat&stdin=true&stdout=true")
    running.open("error", "stdin")
    for _ in range(4):
        running.type(bytes(LARGEST_EARLY_BYTES // 3))
    assert running.frames() == []
    assert not machine.guest.agent.ran


@pytest.mark.parametrize("name", ["stdin", "error"])
def test_resetting_the_input_or_error_stream_cancels_the_command(command, machine, name):
    running = command("command=cat&stdin=true")
    running.open("error", "stdin")
    running.type(b"half of ")
    running.send(spdy.reset(running.streams[name], spdy.CANCEL))
    assert not any(isinstance(frame, Data) for frame in running.frames())
    assert not machine.guest.agent.ran


def test_output_of_a_reset_stream_is_dropped(command, machine):
    running = command("command=cat&stdin=true&stdout=true&stderr=true")
    running.open("error", "stdin", "stdout", "stderr")
    running.send(spdy.reset(running.streams["stdout"], spdy.CANCEL))
    running.type(b"", last=True)
    found = {frame.stream for frame in running.frames() if isinstance(frame, Data)}
    assert found == {running.streams[name] for name in ("error", "stdin", "stderr")}


def test_invalid_data_ends_the_connection(command, machine):
    running = command("command=cat&stdin=true")
    running.open("error", "stdin")
    running.send(NONSENSE)
    assert running.frames() == []
    assert not machine.guest.agent.ran


@pytest.mark.parametrize("leave", ["reset", "nonsense", "close"])
def test_a_command_is_cancelled_with_its_client(command, machine, leave):
    begun, cancelled = threading.Event(), threading.Event()

    async def run(*_):
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    machine.guest.agent.run = run
    running = command("command=sleep&stdout=true")
    running.open("error", "stdout")
    assert begun.wait(60)
    if leave == "reset":
        running.send(spdy.reset(running.streams["error"], spdy.CANCEL) + spdy.ping(1))
    elif leave == "nonsense":
        running.send(NONSENSE)
    else:
        running.websocket.close()
    assert cancelled.wait(60)


@settings(max_examples=30)
@given(st.data())
def test_any_data_of_a_client_is_handled(client, machine, draw):
    """Whatever comes in whatever order, the connection ends, and by no fault of the node."""
    writer = spdy.Writer()
    stream = st.integers(0, 9)
    names = st.sampled_from(["error", "stdin", "stdout", "resize", "", "stdinx"])
    packet = st.one_of(
        st.builds(lambda at, name: ("open", at, name), stream, names),
        st.builds(lambda at, text, last: spdy.data(at, text, last=last),
                  stream, st.binary(max_size=50), st.booleans()),
        st.builds(spdy.reset, stream, st.integers(0, 9)),
        st.builds(spdy.ping, st.integers(0, 2**32 - 1)),
        st.binary(max_size=20),
    )  # fmt: skip
    packets = [
        writer.open(one[1], {"streamtype": one[2]}) if isinstance(one, tuple) else one
        for one in draw.draw(st.lists(packet, max_size=12))
    ]
    together = draw.draw(st.booleans())
    with client.websocket_connect(f"{EXEC}?command=cat&stdin=true", subprotocols=[V4]) as door:
        for one in [b"".join(packets)] if together else packets:
            door.send_bytes(one)
