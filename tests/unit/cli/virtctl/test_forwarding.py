"""Forwarded ports: each client has a stream of its own, independent of others."""

import asyncio
import socket
from contextlib import ExitStack, asynccontextmanager

import pytest

from corral.aio import Background
from corral.api.errors import BadRequest, InternalError
from corral.cli.errors import Problem
from corral.cli.virtctl import forwarding
from corral.cli.virtctl.forwarding import Forwarder, Port, ports_of, relay
from corral.cli.virtctl.target import Target
from corral.client.stream import StreamLost

WEB = Target("vmi", "web", "lab")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("80", Port("tcp", 80, 80)),
        ("8080:80", Port("tcp", 8080, 80)),
        (":80", Port("tcp", 80, 80)),
        ("0:80", Port("tcp", 0, 80)),
        ("udp/53", Port("udp", 53, 53)),
        ("UDP/5353:53", Port("udp", 5353, 53)),
        ("tcp/22", Port("tcp", 22, 22)),
    ],
)
def test_ports_are_parsed(text, expected):
    assert ports_of([text]) == [expected]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "invalid port, missing local and/or remote port"),
        ("tcp/", "invalid port, missing local and/or remote port"),
        ("sctp/80", "unknown protocol: sctp"),
        ("http", 'invalid port "http": http is no port number'),
        ("80:70000", "70000 is no port number"),
        ("80:0", 'invalid port "80:0"'),
        ("1:2:3", 'invalid port "1:2:3"'),
        ("-1", "-1 is no port number"),
    ],
)
def test_invalid_ports_are_rejected(text, message):
    with pytest.raises(Problem, match=message):
        ports_of([text])


class Machine:
    """A stream to a machine: records input, sends the answers of a test."""

    def __init__(self) -> None:
        self.sent = asyncio.Queue()
        self.answers = asyncio.Queue()
        self.left = asyncio.Event()

    async def send(self, data: bytes) -> None:
        self.sent.put_nowait(data)

    async def delivered(self) -> None:
        self.is_delivered = True

    async def __aiter__(self):
        while (answer := await self.answers.get()) is not None:
            if isinstance(answer, Exception):
                raise answer
            yield answer

    def say(self, *answers: bytes | Exception | None) -> None:
        for answer in answers:
            self.answers.put_nowait(answer)


class Session:
    """Opens a machine's stream for each client, or refuses."""

    def __init__(self) -> None:
        self.machines = asyncio.Queue()
        self.paths = []
        self.refusal = None

    @asynccontextmanager
    async def stream(self, path):
        self.paths.append(path)
        if self.refusal is not None:
            raise self.refusal
        machine = Machine()
        self.machines.put_nowait(machine)
        try:
            yield machine
        finally:
            machine.left.set()


@asynccontextmanager
async def listening(session: Session, port: Port):
    """The local port of a forwarder, for the block."""
    async with asyncio.timeout(60), Background() as background:
        with ExitStack() as opened:
            yield await Forwarder(session, WEB, background, opened).listen("127.0.0.1", port)


@pytest.fixture
def session() -> Session:
    return Session()


async def test_each_connection_has_its_stream_and_half_closes(session):
    async with listening(session, Port("tcp", 0, 80)) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        machine = await session.machines.get()
        assert session.paths == [WEB.path("portforward/80/tcp")]
        writer.write(b"question")
        assert await machine.sent.get() == b"question"
        writer.write_eof()
        assert await machine.sent.get() == b"", "the machine sees the end of what the client sends"
        machine.say(b"an", b"swer", None)
        assert await reader.read() == b"answer"
        writer.close()


async def test_a_refused_port_is_reported_and_others_go_on(session, capsys):
    async with listening(session, Port("tcp", 0, 80)) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        machine = await session.machines.get()

        session.refusal = InternalError("dial tcp 10.244.0.2:80: refused")
        refused, unused = await asyncio.open_connection("127.0.0.1", port)
        with pytest.raises(ConnectionResetError):
            await refused.read()
        unused.close()
        message = capsys.readouterr().err
        assert f"error handling connection for {port}: dial tcp 10.244.0.2:80: refused" in message

        machine.say(b"still here", None)
        assert await reader.read() == b"still here"
        writer.close()


async def test_a_lost_stream_resets_its_client(session, capsys):
    async with listening(session, Port("tcp", 0, 80)) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        machine = await session.machines.get()
        machine.say(StreamLost("the server is going away"))
        with pytest.raises(ConnectionResetError):
            await reader.read()
        writer.close()
    assert "the server is going away" in capsys.readouterr().err


async def test_a_port_in_use_is_an_error(session):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        number = taken.getsockname()[1]
        message = f"cannot listen on tcp 127.0.0.1:{number}: Address already in use"
        with pytest.RaisesGroup(pytest.RaisesExc(Problem, match=message)):
            async with listening(session, Port("tcp", number, 80)):
                pass


async def test_each_udp_client_has_its_stream(session, monkeypatch):
    loop = asyncio.get_running_loop()
    with (
        socket.socket(type=socket.SOCK_DGRAM) as one,
        socket.socket(type=socket.SOCK_DGRAM) as two,
    ):
        async with listening(session, Port("udp", 0, 53)) as port:
            machines = []
            for name, client in ((b"one", one), (b"two", two)):
                client.setblocking(False)
                client.connect(("127.0.0.1", port))
                client.send(name)
                machine = await session.machines.get()
                assert await machine.sent.get() == name
                machines.append(machine)
            one.send(b"")
            assert await machines[0].sent.get() == b"", "an empty datagram is one, too"
            machines[1].say(b"for two")
            machines[0].say(b"for one")
            assert await loop.sock_recv(one, 100) == b"for one"
            assert await loop.sock_recv(two, 100) == b"for two"
            assert set(session.paths) == {WEB.path("portforward/53/udp")}

            monkeypatch.setattr(forwarding, "IDLE_SECONDS", 0.01)
            for client, machine in zip((one, two), machines, strict=True):
                client.send(b"bye")
                await machine.left.wait()  # both are silent, and forgotten
            one.send(b"again")
            machine = await session.machines.get()
            assert await machine.sent.get() == b"again"


async def test_a_refused_udp_port_is_reported(session, capsys):
    session.refusal = BadRequest("no network interfaces are present")
    with socket.socket(type=socket.SOCK_DGRAM) as client:
        async with listening(session, Port("udp", 0, 53)) as port:
            client.sendto(b"x", ("127.0.0.1", port))
            message = ""
            while "no network interfaces are present" not in message:
                await asyncio.sleep(0.01)
                message += capsys.readouterr().err


async def test_a_silent_machine_is_disconnected(monkeypatch):
    """After the client's half-close: a server that ignores it blocks no client."""
    monkeypatch.setattr(forwarding, "IDLE_SECONDS", 0.1)
    machine, taken = Machine(), []

    async def nothing_more():
        yield b"bye"

    async def take(data: bytes) -> None:
        taken.append(data)

    machine.say(b"late")
    async with asyncio.timeout(60):
        await relay(machine, nothing_more(), take)
    assert taken == [b"late"]
    assert [machine.sent.get_nowait() for _ in range(2)] == [b"bye", b""]
    assert machine.is_delivered
