"""Ports of a pod and commands in it, as kubectl asks for them."""

import asyncio
import socket
from functools import partial
from types import SimpleNamespace

import msgspec
import pytest
from starlette.testclient import TestClient, WebSocketDenialResponse
from starlette.websockets import WebSocket, WebSocketDisconnect
from tests.unit.node.kubelet.test_vmi_endpoints import Loopback

from corral.api.object import Key
from corral.node import streams
from corral.node.hypervisor import Finished, GuestError
from corral.node.kubelet import portforward, spdy
from corral.node.kubelet.logs import Logs
from corral.node.kubelet.portforward import MOST_STREAMS, PROTOCOL, PortForward
from corral.node.kubelet.server import Kubelet
from corral.node.kubelet.spdy import Data, Opened, Reset
from corral.node.kubelet.vmi_endpoints import VmiEndpoints
from corral.node.metrics.sampling.kubelet_endpoints import ResourceEndpoints
from corral.node.metrics.sampling.sampler import Sampler
from corral.node.network.guest_ports import Ports
from corral.node.state.facts import Facts, State

FORWARD = "/portForward/default/pod"
EXEC = "/exec/default/pod/compute"


class Agent:
    """Runs commands that print their arguments."""

    def __init__(self):
        self.ran = []
        self.answer = Finished(exit_code=0, output=b"out", errors=b"err")

    async def run(self, command, typed=b""):
        self.ran.append((list(command), typed))
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


async def synced(): ...


@pytest.fixture
def machine():
    return SimpleNamespace(
        guest=SimpleNamespace(agent=Agent()),
        facts=Facts(state=State.RUNNING, agent_connected=True, addresses=("127.0.0.1",)),
        record=SimpleNamespace(uid="uid", instance="vm", namespace="default", pod_uid="pod-uid"),
        synced=synced,
    )


@pytest.fixture
def client(machine):
    endpoints = VmiEndpoints(lambda key, uid: None, Ports(Loopback()))
    find = {Key("default", "pod"): machine}.get
    with TestClient(
        Kubelet(find, Logs(), endpoints, ResourceEndpoints("here", Sampler())).asgi
    ) as client:
        yield client


@pytest.fixture
def guest():
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(60)
        yield server


class Kubectl:
    """The client's side of a forwarded connection."""

    def __init__(self, websocket):
        self.websocket = websocket
        self.writer, self.reader = spdy.Writer(), spdy.Reader()
        self.replies = spdy.Reader()
        self.frames = []

    def open(self, port, number, error_stream, data_stream):
        headers = {"port": str(port), "requestid": str(number)}
        self.send(self.writer.open(error_stream, {**headers, "streamtype": "error"}))
        self.send(spdy.data(error_stream, b"", last=True))
        self.send(self.writer.open(data_stream, {**headers, "streamtype": "data"}))

    def send(self, packet):
        self.websocket.send_bytes(packet)

    def frame(self):
        while not self.frames:
            self.frames += self.reader.feed(self.websocket.receive_bytes())
        return self.frames.pop(0)


@pytest.fixture
def kubectl(client):
    with client.websocket_connect(FORWARD, subprotocols=[PROTOCOL]) as websocket:
        assert websocket.accepted_subprotocol == PROTOCOL
        yield Kubectl(websocket)


def test_connections_are_forwarded_in_both_directions(kubectl, guest):
    port = guest.getsockname()[1]
    for number in range(3):
        stream = 4 * number + 1
        kubectl.open(port, number, stream, stream + 2)
        inside, _ = guest.accept()
        with inside:
            inside.settimeout(60)
            kubectl.send(spdy.data(stream + 2, b"question"))
            assert inside.recv(100) == b"question"
            kubectl.send(spdy.data(stream + 2, b"", last=True))
            assert inside.recv(100) == b"", "the client's end is the guest's"
            inside.sendall(b"answer")
            assert kubectl.frame() == Data(stream + 2, b"answer", last=False)
        assert kubectl.frame() == Data(stream, b"", last=True)
        assert kubectl.frame() == Data(stream + 2, b"", last=True)


def test_many_connections_are_open_at_once(kubectl, guest):
    port = guest.getsockname()[1]
    inside = []
    for number in range(20):
        kubectl.open(port, number, 4 * number + 1, 4 * number + 3)
        inside.append(guest.accept()[0])
    for number, connection in enumerate(inside):
        connection.sendall(b"%d" % number)
        assert kubectl.frame() == Data(4 * number + 3, b"%d" % number, last=False)
        connection.close()
        assert {kubectl.frame().stream, kubectl.frame().stream} == {4 * number + 1, 4 * number + 3}


def test_a_closed_port_is_reported(kubectl, guest):
    port = guest.getsockname()[1]
    guest.close()
    kubectl.open(port, 0, 1, 3)
    assert kubectl.frame() == Data(
        1,
        f"error forwarding port {port} to pod pod, uid pod-uid: "
        f"dial tcp 127.0.0.1:{port}: connect: connection refused".encode(),
        last=True,
    )
    assert kubectl.frame() == Data(3, b"", last=True)


def test_a_connection_reset_by_the_client_is_closed(kubectl, guest):
    kubectl.open(guest.getsockname()[1], 0, 1, 3)
    inside, _ = guest.accept()
    with inside:
        inside.settimeout(60)
        kubectl.send(spdy.reset(3, spdy.CANCEL))
        assert inside.recv(1) == b""
    assert kubectl.frame() == Data(1, b"", last=True), "kubectl waits for the end of its errors"


def test_request_ids_can_be_reused(kubectl, guest):
    port = guest.getsockname()[1]
    kubectl.open(port, 7, 1, 3)
    first, _ = guest.accept()
    kubectl.send(spdy.reset(3, spdy.CANCEL))
    kubectl.open(port, 7, 5, 7)
    second, _ = guest.accept()
    with first, second:
        assert [kubectl.frame().stream, kubectl.frame().stream] == [1, 3], "the first has ended"
        kubectl.send(kubectl.writer.open(9, {"port": "1", "requestid": "7", "streamtype": "data"}))
        assert kubectl.frame() == Reset(9), "the second is known"
        second.sendall(b"here")
        assert kubectl.frame() == Data(7, b"here", last=False)


MUCH = b"x" * (1 << 20)


def test_a_guest_that_stops_reading_is_disconnected(kubectl, guest, monkeypatch):
    monkeypatch.setattr(streams, "STALLED_SECONDS", 0.3)
    port = guest.getsockname()[1]
    kubectl.open(port, 0, 1, 3)
    inside, _ = guest.accept()
    with inside:
        for _ in range(40):
            kubectl.send(spdy.data(3, MUCH))
        message = f"port {port} does not read any more".encode()
        assert kubectl.frame() == Data(1, message, last=True)
        assert kubectl.frame() == Data(3, b"", last=True)


class Stuck:
    """A line to a guest that takes nothing and says nothing, and its client's side."""

    def __init__(self):
        self.messages = asyncio.Queue()
        self.messages.put_nowait({"type": "websocket.connect"})
        self.writer = spdy.Writer()
        self.written = asyncio.Event()
        self.closed = asyncio.Event()
        self.takes = asyncio.Event()

    async def connect(self, _port):
        return self

    async def read(self):
        await asyncio.Event().wait()

    async def write(self, _data):
        self.written.set()
        await self.takes.wait()

    async def finish(self):
        await self.takes.wait()

    def end(self):
        pass

    def close(self):
        self.closed.set()

    def say(self, packet):
        self.messages.put_nowait({"type": "websocket.receive", "bytes": packet})

    def open(self, number):
        for stream, kind in ((4 * number + 1, "error"), (4 * number + 3, "data")):
            headers = {"port": "80", "requestid": str(number), "streamtype": kind}
            self.say(self.writer.open(stream, headers))

    def leave(self):
        self.messages.put_nowait({"type": "websocket.disconnect", "code": 1000})

    async def serve(self):
        async def send(_):
            pass

        scope = {"type": "websocket", "path": "/", "headers": [], "subprotocols": []}
        websocket = WebSocket(scope, self.messages.get, send)
        await PortForward(websocket, self.connect, "pod").serve()


async def test_a_guest_without_a_client_times_out(monkeypatch):
    monkeypatch.setattr(portforward, "AFTERWARDS_SECONDS", 0.05)
    guest = Stuck()
    guest.open(0)
    guest.say(spdy.data(3, b"for nobody"))
    guest.leave()
    async with asyncio.timeout(60):
        await guest.serve()
    assert guest.closed.is_set()


async def test_data_of_a_reset_stream_is_not_delivered(monkeypatch):
    monkeypatch.setattr(portforward, "AFTERWARDS_SECONDS", 3600)
    guest = Stuck()
    guest.finish = partial(asyncio.sleep, 0)
    async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
        tasks.create_task(guest.serve())
        guest.open(0)
        guest.say(spdy.data(3, b"for nobody"))
        await guest.written.wait()
        guest.say(spdy.reset(3, spdy.CANCEL))
        await guest.closed.wait()
        guest.leave()


async def test_buffered_data_is_limited(monkeypatch):
    monkeypatch.setattr(portforward, "MOST_WAITING_BYTES", 3000)
    guest = Stuck()
    async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
        tasks.create_task(guest.serve())
        guest.open(0)
        for _ in range(10):
            guest.say(spdy.data(3, bytes(1000)))
        await guest.written.wait()
        for _ in range(1000):
            await asyncio.sleep(0)
        assert guest.messages.qsize() == 7
        guest.takes.set()
        guest.leave()


def test_a_connection_counts_until_its_guest_has_closed(kubectl, guest, monkeypatch):
    monkeypatch.setattr(portforward, "MOST_STREAMS", 2)
    monkeypatch.setattr(portforward, "AFTERWARDS_SECONDS", 3600)
    monkeypatch.setattr(streams, "LINGER_SECONDS", 3600)
    port = guest.getsockname()[1]

    def refused(number):
        """What is reset when another connection is opened."""
        kubectl.open(port, number, 4 * number + 1, 4 * number + 3)
        kubectl.send(spdy.ping(number))
        resets = []
        while (frame := kubectl.frame()) != spdy.Ping(number):
            resets += [frame] * isinstance(frame, Reset)
        return resets

    assert not refused(0)
    inside, _ = guest.accept()
    with inside:
        kubectl.send(spdy.reset(3, spdy.CANCEL))
        assert refused(1) == [Reset(5), Reset(7)]
    number = 2
    while refused(number):
        number += 1
    guest.accept()[0].close()


def test_data_before_both_streams_are_open_resets_its_own(kubectl):
    kubectl.send(kubectl.writer.open(1, {"streamtype": "data", "port": "80", "requestid": "1"}))
    for _ in range(40):
        kubectl.send(spdy.data(1, b"early"))
    kubectl.send(spdy.ping(5))
    assert [kubectl.frame(), kubectl.frame()] == [Reset(1), spdy.Ping(5)]


def test_data_after_the_end_of_a_stream_is_dropped(kubectl, guest):
    kubectl.open(guest.getsockname()[1], 0, 1, 3)
    inside, _ = guest.accept()
    with inside:
        kubectl.send(spdy.data(3, b"", last=True))
        for _ in range(40):
            kubectl.send(spdy.data(3, b"more"))
        kubectl.send(spdy.ping(5))
        assert kubectl.frame() == spdy.Ping(5)


def test_pings_are_answered(kubectl):
    kubectl.send(spdy.ping(5))
    assert kubectl.frame() == spdy.Ping(5)


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"streamtype": "data", "port": "0", "requestid": "1"},
        {"streamtype": "data", "port": "x", "requestid": "1"},
        {"streamtype": "data", "port": "65536", "requestid": "1"},
        {"streamtype": "stdin", "port": "80", "requestid": "1"},
    ],
)
def test_an_invalid_stream_is_reset(kubectl, headers):
    kubectl.send(kubectl.writer.open(1, headers))
    assert kubectl.frame() == Reset(1)


def test_a_stream_id_is_opened_once(kubectl):
    headers = {"streamtype": "error", "port": "80", "requestid": "1"}
    for stream in (1, 3):
        kubectl.send(kubectl.writer.open(stream, headers))
    assert kubectl.frame() == Reset(3)


def test_streams_are_limited(kubectl):
    for number in range(MOST_STREAMS + 1):
        headers = {"streamtype": "error", "port": "80", "requestid": str(number)}
        kubectl.send(kubectl.writer.open(2 * number + 1, headers))
    assert kubectl.frame() == Reset(2 * MOST_STREAMS + 1)
    assert not any(isinstance(frame, Opened) for frame in kubectl.frames)


def test_invalid_frames_end_the_connection(kubectl):
    kubectl.send(b"\xff" * 100)
    with pytest.raises(WebSocketDisconnect):
        kubectl.frame()


def test_other_protocols_are_rejected_before_the_upgrade(client):
    with (
        pytest.raises(WebSocketDenialResponse) as refused,
        client.websocket_connect(FORWARD, subprotocols=["v9.channel.k8s.io"]),
    ):
        pass
    assert refused.value.status_code == 400
    assert PROTOCOL in refused.value.json()["message"]


# -- ports for clients that are no kubectl


def channels(client, query):
    return client.websocket_connect(f"{FORWARD}?{query}", subprotocols=["v4.channel.k8s.io"])


def test_ports_have_channels(client, guest):
    port = guest.getsockname()[1]
    with channels(client, f"ports={port},{port}") as websocket:
        inside = [guest.accept()[0] for _ in range(2)]
        head = {websocket.receive_bytes() for _ in range(4)}
        assert head == {bytes([channel]) + port.to_bytes(2, "little") for channel in range(4)}
        websocket.send_bytes(b"\0first")
        websocket.send_bytes(b"\2second")
        websocket.send_bytes(b"\1nothing is read here")
        websocket.send_bytes(b"\x63nor here")
        said = {connection.recv(100) for connection in inside}
        assert said == {b"first", b"second"}
        inside[0].sendall(b"answer")
        assert websocket.receive_bytes()[1:] == b"answer"
        for connection in inside:
            connection.close()
        with pytest.raises(WebSocketDisconnect):
            websocket.receive_bytes()


def test_an_ended_connection_does_not_delay_others(client, guest):
    port = guest.getsockname()[1]
    with channels(client, f"ports={port},{port}") as websocket:
        inside = [guest.accept()[0] for _ in range(2)]
        websocket.send_bytes(b"\0first")
        websocket.send_bytes(b"\2second")
        by_name = {connection.recv(100): connection for connection in inside}
        by_name[b"first"].close()
        for _ in range(100):
            websocket.send_bytes(b"\0more")
        websocket.send_bytes(b"\2still here")
        assert by_name[b"second"].recv(100) == b"still here"
        by_name[b"second"].close()


def test_a_port_that_stops_reading_is_disconnected(client, guest, monkeypatch):
    monkeypatch.setattr(streams, "STALLED_SECONDS", 0.3)
    port = guest.getsockname()[1]
    with channels(client, f"ports={port}") as websocket:
        inside, _ = guest.accept()
        with inside:
            for _ in range(40):
                websocket.send_bytes(b"\0" + MUCH)
            last = [websocket.receive_bytes() for _ in range(3)][2]
            assert last == b"\1" + f"port {port} does not read any more".encode()
            with pytest.raises(WebSocketDisconnect):
                websocket.receive_bytes()


def test_the_error_channel_has_the_error(client, guest):
    port = guest.getsockname()[1]
    guest.close()
    with channels(client, f"ports={port}") as websocket:
        heads = [websocket.receive_bytes()[0] for _ in range(2)]
        assert heads == [0, 1]
        received = websocket.receive_bytes()
        assert received[0] == 1
        assert b"connection refused" in received


@pytest.mark.parametrize("query", ["", "ports=", "ports=x", "ports=0", "ports=" + "1," * 64 + "1"])
def test_channels_need_ports(client, query):
    with pytest.raises(WebSocketDenialResponse) as refused, channels(client, query):
        pass
    assert refused.value.status_code == 400


# -- commands


def listen(websocket, said):
    while message := websocket.receive_bytes():
        said[message[0]] = said.get(message[0], b"") + message[1:]


def run(client, query, protocols=("v5.channel.k8s.io", "v4.channel.k8s.io"), typed=()):
    """What comes on each channel."""
    said = {}
    with client.websocket_connect(f"{EXEC}?{query}", subprotocols=list(protocols)) as websocket:
        for message in typed:
            websocket.send_bytes(message)
        with pytest.raises(WebSocketDisconnect) as closed:
            listen(websocket, said)
    assert closed.value.code == 1000
    return said.get(1, b""), said.get(2, b""), msgspec.json.decode(said[3])


@pytest.mark.parametrize("protocol", ["v5.channel.k8s.io", "v4.channel.k8s.io"])
def test_a_command_runs_in_the_guest(client, machine, protocol):
    output, errors, status = run(client, "command=ls&command=-l&stdout=true", [protocol])
    assert machine.guest.agent.ran == [(["ls", "-l"], b"")]
    assert (output, errors, status["status"]) == (b"out", b"err", "Success")


def test_the_exit_code_is_in_a_status_as_from_a_kubelet(client, machine):
    machine.guest.agent.answer = Finished(exit_code=3, output=b"x" * 200_000)
    output, _, status = run(client, "command=false")
    assert len(output) == 200_000
    assert status["reason"] == "NonZeroExitCode"
    assert status["details"]["causes"] == [{"reason": "ExitCode", "message": "3"}]


def test_input_is_read_to_its_end(client, machine):
    typed = [b"\0some", b"\4{}", b"\0 words", b"\xff\0"]
    run(client, "command=cat&stdin=true", typed=typed)
    assert machine.guest.agent.ran == [(["cat"], b"some words")]


@pytest.mark.parametrize(
    ("query", "protocols", "why"),
    [
        ("command=sh&tty=true", ["v5.channel.k8s.io"], "there is no terminal"),
        ("command=cat&stdin=true", ["v4.channel.k8s.io"], "input needs the subprotocol"),
    ],
)
def test_unsupported_options_are_reported_with_the_alternative(
    client, machine, query, protocols, why
):
    _, _, status = run(client, query, protocols)
    assert status["status"] == "Failure"
    assert status["code"] == 400
    assert why in status["message"]
    assert not machine.guest.agent.ran


def test_a_command_is_required(client, machine):
    _, _, status = run(client, "stdout=true")
    assert status["message"] == "you must specify at least 1 command for the container"
    assert not machine.guest.agent.ran


def test_without_a_guest_agent_nothing_runs(client, machine):
    machine.facts = Facts(state=State.RUNNING)
    _, _, status = run(client, "command=ls")
    assert "corral console vm -n default" in status["message"]
    assert not machine.guest.agent.ran


def test_a_command_waits_for_an_agent_that_was_restarted(client, machine):
    async def synced():
        machine.facts = connected

    connected, machine.facts, machine.synced = machine.facts, Facts(state=State.RUNNING), synced
    machine.guest.agent.answer = Finished(output=b"up", errors=b"", exit_code=0)
    _, _, status = run(client, "command=ls")
    assert status["status"] == "Success"


def test_errors_of_the_guest_agent_are_quoted(client, machine):
    machine.guest.agent.answer = GuestError("No such file or directory")
    _, _, status = run(client, "command=nosuch")
    assert (status["code"], status["message"]) == (
        500, "Internal error occurred: No such file or directory",
    )  # fmt: skip


def test_exec_in_a_missing_pod_is_not_found(client):
    with (
        pytest.raises(WebSocketDenialResponse) as refused,
        client.websocket_connect("/exec/default/other/compute", subprotocols=["v5.channel.k8s.io"]),
    ):
        pass
    assert refused.value.status_code == 404
