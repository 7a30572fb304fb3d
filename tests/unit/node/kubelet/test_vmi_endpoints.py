"""Endpoints of a VMI, as the API server requests them."""

import asyncio
import errno
import socket
from dataclasses import replace
from types import SimpleNamespace

import msgspec
import pytest
from starlette.testclient import TestClient, WebSocketDenialResponse
from starlette.websockets import WebSocket, WebSocketDisconnect

from corral.aio import Signal
from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.api.object import Key
from corral.node import streams
from corral.node.hollow.hypervisor import Hollow
from corral.node.hypervisor import Change, Definition, GuestError
from corral.node.kubelet import websockets
from corral.node.kubelet.logs import Logs
from corral.node.kubelet.server import Kubelet
from corral.node.kubelet.vmi_endpoints import VmiEndpoints
from corral.node.metrics.sampling.kubelet_endpoints import ResourceEndpoints
from corral.node.metrics.sampling.sampler import Sampler
from corral.node.network.guest_ports import Ports
from corral.node.state.facts import Facts, State

MUCH = b"x" * 60_000
CONSOLE = "/console/default/vm/uid"
SCREEN = "/vnc/default/vm/uid"


class NotYet(GuestError):
    """The agent was restarted, and has not found the guest yet."""


class Machine:
    """A machine that endpoints use; ``trouble`` is what its guest does instead."""

    def __init__(self, guest, directory):
        self._guest = guest
        self.directory = directory
        self.facts = Facts(state=State.RUNNING, addresses=("127.0.0.1",), agent_connected=True)
        self.record = SimpleNamespace(uid="uid", instance="vm")
        self.trouble = None
        self.checkpoint = SimpleNamespace(idle=Signal(is_set=True))

    def set_facts(self, facts):
        self.facts = facts

    async def synced(self):
        if isinstance(self.trouble, NotYet):
            self.trouble = None

    async def pause(self):
        await self.guest.pause()

    async def unpause(self):
        await self.guest.resume()

    @property
    def guest(self):
        if self.trouble:
            raise self.trouble
        return self._guest


class Loopback:
    """The network of the pods, where each is this host."""

    async def connect(self, address, port):
        made = await self.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            await asyncio.get_running_loop().sock_connect(made, (address, port))
        except BaseException:
            made.close()
            raise
        return made

    async def socket(self, family, kind):
        made = socket.socket(family, kind)
        made.setblocking(False)
        return made


@pytest.fixture
def machine(tmp_path):
    document = {"metadata": {"name": "vm"}, "spec": {"domain": {"devices": {}}}}
    vmi = msgspec.convert(document, VirtualMachineInstance)
    definition = Definition(vmi=vmi, directory=tmp_path)
    return Machine(asyncio.run(Hollow().start(definition)), tmp_path)


@pytest.fixture
def endpoints(machine):
    return VmiEndpoints(
        lambda key, uid: machine if (key, uid) == (Key("default", "vm"), "uid") else None,
        Ports(Loopback()),
    )


@pytest.fixture
def client(endpoints):
    app = Kubelet(lambda key: None, Logs(), endpoints, ResourceEndpoints("here", Sampler())).asgi
    with TestClient(app) as client:  # one event loop for all its connections
        yield client


def refusal(client, path):
    with pytest.raises(WebSocketDenialResponse) as refused, client.websocket_connect(path):
        pass
    return refused.value.status_code, refused.value.json()["message"]


# -- consoles and screens


@pytest.mark.parametrize(
    ("path", "greeting"), [(CONSOLE, b"\r\nhollow login: "), (SCREEN, b"RFB 003.008\n")]
)
def test_a_console_carries_bytes_both_ways(client, path, greeting):
    with client.websocket_connect(path, subprotocols=["plain.kubevirt.io"]) as console:
        assert console.accepted_subprotocol == "plain.kubevirt.io"
        assert console.receive_bytes() == greeting
        console.send_text("ignored")
        console.send_bytes(b"root\r\x00\xff")
        assert console.receive_bytes() == b"root\r\x00\xff"


@pytest.mark.parametrize("path", [CONSOLE, SCREEN])
def test_the_second_client_displaces_the_first(client, path):
    with client.websocket_connect(path) as first:
        first.receive_bytes()
        with client.websocket_connect(path) as second:
            second.receive_bytes()
            with pytest.raises(WebSocketDisconnect) as left:
                first.receive_bytes()
            assert left.value.code == 1006
            second.send_bytes(b"mine")
            assert second.receive_bytes() == b"mine"


def test_vnc_and_console_do_not_displace_each_other(client):
    with client.websocket_connect(CONSOLE) as console, client.websocket_connect(SCREEN) as screen:
        console.receive_bytes()
        screen.receive_bytes()
        console.send_bytes(b"still here")
        assert console.receive_bytes() == b"still here"


def test_a_session_may_be_preserved(client):
    with client.websocket_connect(SCREEN) as first:
        first.receive_bytes()
        code, message = refusal(client, f"{SCREEN}?preserveSession=true")
        assert (code, message) == (409, "Active VNC connection. Request denied.")
        first.send_bytes(b"mine")
        assert first.receive_bytes() == b"mine"
    with client.websocket_connect(f"{SCREEN}?preserveSession=true") as next_one:
        assert next_one.receive_bytes()


def test_a_console_is_free_once_its_client_has_closed(client):
    for _ in range(3):
        with client.websocket_connect(CONSOLE) as console:
            assert console.receive_bytes()


@pytest.mark.parametrize("path", ["/console/default/vm/other", "/console/default/other/uid"])
def test_a_missing_machine_has_no_console(client, path):
    assert refusal(client, path) == (400, "VMI is not running")


def test_an_unresponsive_guest_has_no_console(client, machine):
    machine.trouble = GuestError("the machine does not run")
    code, message = refusal(client, CONSOLE)
    assert code == 400
    assert "the machine does not run" in message


@pytest.mark.parametrize("path", [CONSOLE, SCREEN])
def test_a_console_waits_for_an_agent_that_was_restarted(client, machine, path):
    machine.trouble = NotYet("the machine does not run")
    with client.websocket_connect(path, subprotocols=["plain.kubevirt.io"]):
        assert machine.trouble is None


def test_a_screenshot(client):
    answer = client.get("/vnc/screenshot/default/vm/uid")
    assert answer.headers["content-type"] == "image/png"
    assert answer.content.startswith(b"\x89PNG")


# -- ports


@pytest.fixture
def echo():
    """The port of a server that answers one connection with what it reads, and its end."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


def test_a_port_carries_bytes_both_ways(client, echo):
    path = f"/portforward/default/vm/uid/{echo.getsockname()[1]}/tcp"
    with client.websocket_connect(path, subprotocols=["plain.kubevirt.io"]) as forward:
        guest, _ = echo.accept()
        with guest:
            forward.send_bytes(b"question")
            assert guest.recv(100) == b"question"
            guest.sendall(b"answer")
            assert forward.receive_bytes() == b"answer"
        with pytest.raises(WebSocketDisconnect) as closed:
            forward.receive_bytes()
        assert closed.value.code == 1000


def test_a_guest_sees_the_close_of_its_client(client, echo):
    path = f"/portforward/default/vm/uid/{echo.getsockname()[1]}/tcp"
    with client.websocket_connect(path):
        guest, _ = echo.accept()
    with guest:
        guest.settimeout(60)
        assert guest.recv(1) == b""


def test_a_half_closed_client_can_still_read(client, echo):
    path = f"/portforward/default/vm/uid/{echo.getsockname()[1]}/tcp"
    with client.websocket_connect(path) as forward:
        guest, _ = echo.accept()
        with guest:
            guest.settimeout(60)
            forward.send_bytes(b"question")
            forward.send_bytes(b"")
            assert guest.recv(100) == b"question"
            assert guest.recv(1) == b""
            guest.sendall(b"answer")
            assert forward.receive_bytes() == b"answer"


def test_a_guest_that_does_not_read_is_disconnected(client, echo, monkeypatch):
    monkeypatch.setattr(streams, "STALLED_SECONDS", 0.3)
    path = f"/portforward/default/vm/uid/{echo.getsockname()[1]}/tcp"
    with client.websocket_connect(path) as forward:
        guest, _ = echo.accept()
        with guest:
            for _ in range(40):
                forward.send_bytes(b"x" * (1 << 20))
            with pytest.raises(WebSocketDisconnect):
                forward.receive_bytes()


def test_data_after_a_half_close_closes_the_connection(client, echo):
    path = f"/portforward/default/vm/uid/{echo.getsockname()[1]}/tcp"
    with client.websocket_connect(path) as forward:
        guest, _ = echo.accept()
        with guest:
            forward.send_bytes(b"")
            forward.send_bytes(b"more")
            with pytest.raises(WebSocketDisconnect) as closed:
                forward.receive_bytes()
            assert closed.value.code == 1000


def test_a_closed_port_is_rejected_before_the_upgrade(client, echo):
    port = echo.getsockname()[1]
    echo.close()
    code, message = refusal(client, f"/portforward/default/vm/uid/{port}/tcp")
    assert code == 500
    assert message == (
        f"Internal error occurred: dialing VM: dial tcp 127.0.0.1:{port}: connect: "
        "connection refused"
    )


def test_datagrams_keep_their_boundaries(client):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as guest:
        guest.bind(("127.0.0.1", 0))
        guest.settimeout(60)
        path = f"/portforward/default/vm/uid/{guest.getsockname()[1]}/udp"
        with client.websocket_connect(path) as forward:
            forward.send_bytes(b"one")
            forward.send_bytes(b"two")
            data, client_address = guest.recvfrom(100)
            assert (data, guest.recv(100)) == (b"one", b"two")
            guest.sendto(b"1", client_address)
            guest.sendto(b"2", client_address)
            assert [forward.receive_bytes(), forward.receive_bytes()] == [b"1", b"2"]


async def test_undeliverable_datagrams_end_the_stream(monkeypatch):
    async def unreachable(*_):
        raise OSError(errno.EHOSTUNREACH, "No route to host")

    line = await Ports(Loopback()).udp("127.0.0.1", 9)
    monkeypatch.setattr(asyncio.get_running_loop(), "sock_recv", unreachable)
    assert await line.read() == b""
    line.close()


async def test_without_a_network_ports_are_unavailable():
    with pytest.raises(GuestError, match="user network"):
        await Ports(None).tcp("10.0.0.1", 80)
    with pytest.raises(GuestError, match="no address yet"):
        await Ports(Loopback()).tcp("", 80)


# -- questions and acts


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("guestosinfo", "VirtualMachineInstanceGuestAgentInfo"),
        ("userlist", "VirtualMachineInstanceGuestOSUserList"),
        ("filesystemlist", "VirtualMachineInstanceFileSystemList"),
    ],
)
def test_guest_info_is_served(client, path, kind):
    answer = client.get(f"/{path}/default/vm/uid")
    assert answer.status_code == 200
    assert (answer.json()["apiVersion"], answer.json()["kind"]) == ("kubevirt.io/v1", kind)


def test_an_unresponsive_guest_is_reported(client, machine):
    machine.trouble = GuestError("the guest agent does not answer")
    for answer in (
        client.get("/userlist/default/vm/uid"),
        client.get("/vnc/screenshot/default/vm/uid"),
        client.put("/pause/default/vm/uid"),
    ):
        assert answer.status_code == 500
        assert answer.json()["message"] == (
            "Internal error occurred: the guest agent does not answer"
        )


@pytest.mark.parametrize("act", ["pause", "unpause", "softreboot", "reset", "freeze", "unfreeze"])
def test_a_machine_that_is_saved_rejects_actions(client, machine, act):
    machine.facts = replace(machine.facts, saving=True)
    answer = client.put(f"/{act}/default/vm/uid")
    assert (answer.status_code, answer.json()["reason"]) == (409, "Conflict")
    assert "is being saved" in answer.json()["message"]
    assert not machine._guest._changes


@pytest.mark.parametrize(("act", "change"), [("pause", Change.PAUSED), ("unpause", Change.RESUMED)])
def test_a_machine_is_paused_and_resumed(client, machine, act, change):
    machine._guest._state.halted = False
    assert client.put(f"/{act}/default/vm/uid").status_code == 200
    assert machine._guest._changes.pop(0) is change
    assert client.get(f"/{act}/default/vm/uid").status_code == 405


# -- a guest that has said all before its client has


@pytest.fixture
async def ended():
    """A line whose guest has said all, its socket, and a websocket that gets the rest."""
    ours, inside = socket.socketpair()
    messages = asyncio.Queue()
    messages.put_nowait({"type": "websocket.connect"})

    async def send(_):
        pass

    scope = {"type": "websocket", "path": "/", "headers": [], "subprotocols": []}
    websocket = WebSocket(scope, messages.get, send)
    await websocket.accept()
    with inside:
        inside.setblocking(False)
        inside.shutdown(socket.SHUT_WR)
        line = streams.StreamLine(ours)
        yield line, inside, websocket, messages
        line.close()


async def test_data_before_the_end_of_a_guest_is_delivered(ended):
    line, inside, websocket, messages = ended
    for _ in range(50):
        messages.put_nowait({"type": "websocket.receive", "bytes": MUCH})
    messages.put_nowait({"type": "websocket.disconnect", "code": 1000})

    async def read():
        found = 0
        while content := await asyncio.get_running_loop().sock_recv(inside, 1 << 16):
            found += len(content)
        return found

    async with asyncio.timeout(60):
        carried = asyncio.ensure_future(websockets.carry(websocket, line))
        for _ in range(1000):  # it has written all that finds room
            await asyncio.sleep(0)
        assert not carried.done()
        reading = asyncio.ensure_future(read())
        await carried
        line.end()
        assert await reading == 50 * len(MUCH)


async def test_a_guest_that_has_ended_its_stream_times_out(ended, monkeypatch):
    monkeypatch.setattr(websockets, "AFTERWARDS_SECONDS", 0.05)
    line, _, websocket, messages = ended
    for _ in range(50):
        messages.put_nowait({"type": "websocket.receive", "bytes": MUCH})
    async with asyncio.timeout(60):
        await websockets.carry(websocket, line)
