"""Every door of a machine, behind real sockets: what was sent before an end arrives, each byte."""

import asyncio
import contextlib
import random
import socket
import ssl
from types import SimpleNamespace

import msgspec
import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from corral import pki
from corral.api.object import Key
from corral.node.hypervisor import Finished
from corral.node.kubelet import spdy
from corral.node.kubelet.logs import Logs
from corral.node.kubelet.server import Kubelet
from corral.node.kubelet.spdy import Data
from corral.node.kubelet.vmi_endpoints import VmiEndpoints
from corral.node.metrics.sampling.kubelet_endpoints import ResourceEndpoints
from corral.node.metrics.sampling.sampler import Sampler
from corral.node.network.guest_ports import Ports
from corral.node.state.facts import Facts, State
from corral.node.streams import StreamLine
from corral.server.transport.listener import listening, tls_context

MUCH = random.Random(1).randbytes(4 << 20)
CHATTER = random.Random(2).randbytes(100_000)
PIECE = 30_000


class Inside:
    """A guest with one server, which all its lines lead to, and an agent that reads one file."""

    def __init__(self):
        self.serve = None
        self.port = 0
        self.agent = self
        self.done = asyncio.Queue()

    async def connected(self, reader, writer):
        self.done.put_nowait(await self.serve(reader, writer))
        writer.close()

    async def connect(self, _address, port):
        made = socket.socket()
        made.setblocking(False)
        await asyncio.get_running_loop().sock_connect(made, ("127.0.0.1", port))
        return made

    async def console(self):
        return StreamLine(await self.connect("", self.port))

    screen = console

    async def run(self, _command, typed=b""):
        self.typed = typed
        return Finished(exit_code=0, output=MUCH, errors=CHATTER)


@pytest.fixture
async def guest():
    guest = Inside()
    server = await asyncio.start_server(guest.connected, "127.0.0.1", 0)
    guest.port = server.sockets[0].getsockname()[1]
    yield guest
    server.close()


async def synced(): ...


@pytest.fixture
async def served(guest, tmp_path):
    """Where the node of that guest is served, and what its certificate is to be."""
    machine = SimpleNamespace(
        guest=guest,
        facts=Facts(state=State.RUNNING, agent_connected=True, addresses=("127.0.0.1",)),
        record=SimpleNamespace(uid="uid", instance="vm", namespace="default", pod_uid="pod-uid"),
        synced=synced,
    )
    endpoints = VmiEndpoints(lambda key, uid: machine, Ports(guest))
    find = {Key("default", "pod"): machine}.get
    app = Kubelet(find, Logs(), endpoints, ResourceEndpoints("here", Sampler())).asgi
    identity = pki.ensure(tmp_path / "pki")
    tls = tls_context(identity.certificate, identity.key)
    trust = ssl.create_default_context(cafile=identity.authority)
    async with listening(app, "127.0.0.1", 0, tls) as (_, port):
        yield SimpleNamespace(port=port, trust=trust)


class Websocket:
    """Messages."""

    def __init__(self, connection):
        self._connection = connection
        self.send = connection.send
        self.leave = connection.close

    async def receive(self):
        try:
            return await self._connection.recv()
        except ConnectionClosed:
            return b""


class Upgraded:
    """A connection that has become SPDY."""

    def __init__(self, reader, writer):
        self._reader = reader
        self._writer = writer

    async def send(self, data):
        self._writer.write(data)
        await self._writer.drain()

    async def receive(self):
        return await self._reader.read(PIECE)


class Client(ClientConnection):
    """Takes the names of protocols that RFC 6455 does not allow, as Kubernetes' clients do."""

    def __init__(self, protocol, **settings):
        protocol.process_subprotocol = lambda headers: None
        super().__init__(protocol, **settings)


@contextlib.asynccontextmanager
async def websocket(served, path, protocol):
    async with connect(
        f"wss://127.0.0.1:{served.port}{path}",
        ssl=served.trust,
        additional_headers={"sec-websocket-protocol": protocol},
        create_connection=Client,
        proxy=None,
        compression=None,
        open_timeout=60,
        close_timeout=60,
    ) as connection:
        yield Websocket(connection)


@contextlib.asynccontextmanager
async def upgraded(served, path, protocol):
    reader, writer = await asyncio.open_connection("127.0.0.1", served.port, ssl=served.trust)
    lines = [f"POST {path} HTTP/1.1", "host: x", "connection: Upgrade", "upgrade: SPDY/3.1"]
    lines.append(f"x-stream-protocol-version: {protocol.removeprefix('SPDY/3.1+')}")
    writer.write("\r\n".join([*lines, "", ""]).encode())
    head = await reader.readuntil(b"\r\n\r\n")
    assert b" 101 " in head, head
    try:
        yield Upgraded(reader, writer)
    finally:
        writer.close()


class Plain:
    """A connection whose messages are the bytes."""

    def __init__(self, carrier):
        self._carrier = carrier

    async def begin(self, _port):
        pass

    async def send(self, data):
        await self._carrier.send(data)

    async def leave(self):
        await self._carrier.leave()

    async def said(self):
        while data := await self._carrier.receive():
            yield data


class Channels(Plain):
    """The first byte of a message is its channel."""

    async def begin(self, _port):
        self._heads = 2

    async def send(self, data):
        await self._carrier.send(b"\0" + data)

    async def said(self):
        async for message in super().said():
            if self._heads:
                self._heads -= 1
            else:
                assert message[0] == 0
                yield message[1:]


class Forwarded(Plain):
    """What kubectl does for one connection."""

    async def begin(self, port):
        writer = spdy.Writer()
        headers = {"port": str(port), "requestid": "0"}
        await self._carrier.send(writer.open(1, {**headers, "streamtype": "error"}))
        await self._carrier.send(spdy.data(1, b"", last=True))
        await self._carrier.send(writer.open(3, {**headers, "streamtype": "data"}))

    async def send(self, data):
        await self._carrier.send(spdy.data(3, data))

    async def said(self):
        reader = spdy.Reader()
        while data := await self._carrier.receive():
            for frame in reader.feed(data):
                if frame == Data(3, b"", last=True):
                    return
                if isinstance(frame, Data) and frame.stream == 3:
                    yield frame.data
                else:
                    assert frame == Data(1, b"", last=True) or not isinstance(frame, Data)


class Ended(Forwarded):
    """The same; all is said, and the client stays."""

    async def leave(self):
        await self._carrier.send(spdy.data(3, b"", last=True))


FORWARD = "/portForward/default/pod"
DOORS = {
    "console": (Plain, websocket, "/console/default/vm/uid", "plain.kubevirt.io"),
    "vnc": (Plain, websocket, "/vnc/default/vm/uid", "plain.kubevirt.io"),
    "port": (Plain, websocket, "/portforward/default/vm/uid/{}/tcp", "plain.kubevirt.io"),
    "kubectl": (Forwarded, websocket, FORWARD, "SPDY/3.1+portforward.k8s.io"),
    "ended": (Ended, websocket, FORWARD, "SPDY/3.1+portforward.k8s.io"),
    "spdy": (Ended, upgraded, FORWARD, "SPDY/3.1+portforward.k8s.io"),
    "channels": (Channels, websocket, FORWARD + "?ports={}", "v4.channel.k8s.io"),
}


@pytest.fixture(params=DOORS)
async def door(request, guest, served):
    kind, carrier, path, protocol = DOORS[request.param]

    @contextlib.asynccontextmanager
    async def opened():
        async with carrier(served, path.format(guest.port), protocol) as one:
            door = kind(one)
            await door.begin(guest.port)
            yield door

    return opened


async def read_slowly(reader):
    """All that comes; others have many turns between two pieces."""
    found = bytearray()
    with contextlib.suppress(OSError):
        while data := await reader.read(PIECE):
            found += data
            await asyncio.sleep(0.001)
    return bytes(found)


async def test_data_of_a_guest_before_its_close_arrives(door, guest):
    async def serve(_reader, writer):
        writer.write(MUCH)

    guest.serve = serve
    async with asyncio.timeout(60), door() as client:
        found = b""
        async for piece in client.said():
            found += piece
            await asyncio.sleep(0.001)
    assert found == MUCH


async def test_data_of_a_client_before_its_close_arrives(door, guest):
    async def serve(reader, writer):
        writer.write(CHATTER)
        return await read_slowly(reader)

    guest.serve = serve
    async with asyncio.timeout(60), door() as client, asyncio.TaskGroup() as tasks:
        heard = tasks.create_task(anext(aiter(client.said())))
        await heard
        for at in range(0, len(MUCH), PIECE):
            await client.send(MUCH[at : at + PIECE])
        await client.leave()
        assert await guest.done.get() == MUCH


async def test_an_echoing_guest_gets_all_data_before_the_client_closes(door, guest):
    """It talks all the time to who listens no more."""

    async def serve(reader, writer):
        found = bytearray()
        while data := await reader.read(PIECE):
            found += data
            writer.write(data)
            with contextlib.suppress(OSError):
                await writer.drain()
        return bytes(found)

    guest.serve = serve
    async with asyncio.timeout(60), door() as client, asyncio.TaskGroup() as tasks:

        async def listen():
            async for _ in client.said():
                pass

        tasks.create_task(listen())
        for at in range(0, len(MUCH), PIECE):
            await client.send(MUCH[at : at + PIECE])
        await client.leave()
        assert await guest.done.get() == MUCH


async def test_data_of_a_guest_that_stops_reading_arrives(door, guest):
    """As from a server that refuses a request while it is still sent."""

    async def serve(reader, writer):
        writer.write(CHATTER)
        await writer.drain()
        await reader.read(1)

    guest.serve = serve
    async with asyncio.timeout(60), door() as client, asyncio.TaskGroup() as tasks:

        async def talk():
            with contextlib.suppress(ConnectionClosed, OSError):
                for at in range(0, len(MUCH), PIECE):
                    await client.send(MUCH[at : at + PIECE])

        await client.send(b"x")
        await guest.done.get()
        talking = tasks.create_task(talk())
        found = b""
        async for piece in client.said():
            found += piece
        talking.cancel()
    assert found == CHATTER


EXEC = "/exec/default/pod/compute?command=cat&stdin=true&stdout=true&stderr=true"


async def test_all_output_of_a_command_arrives_over_channels(served, guest):
    said = {}
    async with asyncio.timeout(60), websocket(served, EXEC, "v5.channel.k8s.io") as client:
        for at in range(0, len(MUCH), PIECE):
            await client.send(b"\0" + MUCH[at : at + PIECE])
        await client.send(b"\xff\0")
        while message := await client.receive():
            said[message[0]] = said.get(message[0], b"") + message[1:]
            await asyncio.sleep(0.001)
    assert guest.typed == MUCH
    assert (said[1], said[2]) == (MUCH, CHATTER)
    assert msgspec.json.decode(said[3])["status"] == "Success"


@pytest.mark.parametrize("carrier", [websocket, upgraded])
async def test_all_output_of_a_command_arrives_over_spdy(served, guest, carrier):
    names = ["error", "stdin", "stdout", "stderr"]
    said = dict.fromkeys(names, b"")
    async with asyncio.timeout(60), carrier(served, EXEC, "SPDY/3.1+v4.channel.k8s.io") as client:
        writer, reader = spdy.Writer(), spdy.Reader()
        for number, name in enumerate(names):
            await client.send(writer.open(2 * number + 1, {"streamtype": name}))
        for at in range(0, len(MUCH), PIECE):
            await client.send(spdy.data(3, MUCH[at : at + PIECE]))
        await client.send(spdy.data(3, b"", last=True))
        left = set(names)
        while left:
            for frame in reader.feed(await client.receive()):
                if isinstance(frame, Data):
                    name = names[frame.stream // 2]
                    said[name] += frame.data
                    left -= {name} if frame.last else set()
            await asyncio.sleep(0.001)
    assert guest.typed == MUCH
    assert (said["stdout"], said["stderr"]) == (MUCH, CHATTER)
    assert msgspec.json.decode(said["error"])["status"] == "Success"
