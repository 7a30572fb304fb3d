"""The screen of a machine at a local port, with a viewer or without."""

import asyncio
import json
import stat
import sys
from contextlib import asynccontextmanager, suppress

import pytest
from bench.cluster import free_port

from corral.cli.errors import Problem, cause_of
from corral.cli.main import run
from corral.cli.virtctl.vnc import ProxyOptions, _show, viewer_of

GREETING = b"RFB 003.008\n"
VIEWER = f"""#!{sys.executable}
import socket, sys
host, port = sys.argv[1].split(":")
with socket.create_connection((host, int(port))) as screen:
    assert screen.recv(100) == {GREETING!r}
    screen.sendall(b"seen")
    screen.recv(1)
sys.exit(int({{code}}))
"""


class Screen:
    """A machine's screen: greets, and ends after the answer."""

    close_reason = ""

    def __init__(self) -> None:
        self.sent = asyncio.Queue()
        self.is_delivered = False

    async def delivered(self) -> None:
        self.is_delivered = True

    async def send(self, data: bytes) -> None:
        self.sent.put_nowait(data)

    async def __aiter__(self):
        yield GREETING
        self.answer = await self.sent.get()


class Staying(Screen):
    """A screen that stays open after the answer."""

    async def __aiter__(self):
        yield GREETING
        await asyncio.Event().wait()


class Session:
    def __init__(self, screen=Screen) -> None:
        self.paths = []
        self._screen = screen

    @asynccontextmanager
    async def stream(self, path):
        self.paths.append(path)
        self.screen = self._screen()
        yield self.screen


def viewer(directory, *, code: int = 0):
    program = directory / "viewer"
    program.write_text(VIEWER.format(code=code))
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return str(program)


def proxy(**chosen) -> ProxyOptions:
    return ProxyOptions(**{"address": "127.0.0.1", "port": 0, "proxy_only": False, **chosen})


async def test_a_viewer_is_started_at_the_local_port(tmp_path):
    session = Session()
    async with asyncio.timeout(60):
        await _show(session, "/vnc", proxy(viewer=(viewer(tmp_path), "{}:{}")))
    assert session.screen.answer == b"seen"


async def test_proxy_only_prints_the_port(capsys):
    session = Session()
    async with asyncio.timeout(60):
        showing = asyncio.ensure_future(_show(session, "/vnc", proxy(proxy_only=True)))
        output = ""
        while not output:
            await asyncio.sleep(0.01)
            output = capsys.readouterr().out
        assert output.startswith('{"port":')
        reader, writer = await asyncio.open_connection("127.0.0.1", json.loads(output)["port"])
        assert await reader.read(100) == GREETING
        writer.write(b"seen")
        assert await reader.read() == b""
        writer.close()
        await showing
    assert session.screen.answer == b"seen"


async def test_the_last_data_of_a_viewer_is_delivered():
    port, session = free_port(), Session(Staying)
    async with asyncio.timeout(60):
        showing = asyncio.ensure_future(_show(session, "/vnc", proxy(proxy_only=True, port=port)))
        while not showing.done():
            with suppress(ConnectionRefusedError):
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                break
            await asyncio.sleep(0.01)
        assert await reader.read(100) == GREETING
        writer.write(b"bye")
        writer.close()
        await showing
    assert session.screen.sent.get_nowait() == b"bye"
    assert session.screen.is_delivered


async def test_a_failed_viewer_is_an_error():
    with pytest.raises(ExceptionGroup) as raised:
        await _show(Session(), "/vnc", proxy(viewer=("/bin/false", "{}:{}")))
    assert str(cause_of(raised.value)) == "/bin/false ended with exit code 1"


@pytest.mark.parametrize(
    ("kind", "path", "expected"),
    [
        (None, "/opt/remote-viewer", ("/opt/remote-viewer", "vnc://{}:{}")),
        (None, "/opt/vncviewer", ("/opt/vncviewer", "{}:{}")),
        ("remote-viewer", "/opt/mine", ("/opt/mine", "vnc://{}:{}")),
    ],
)
def test_a_named_viewer_is_used(kind, path, expected):
    assert viewer_of(kind, path) == expected


def test_the_first_installed_viewer_is_used(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Problem, match="could not find remote-viewer or vncviewer binary in"):
        viewer_of(None, "")
    program = tmp_path / "vncviewer"
    program.write_text("")
    program.chmod(0o755)
    assert viewer_of(None, "") == (str(program), "{}:{}")


def test_preserve_session_is_passed_on(nobody_home, monkeypatch):
    paths = []

    async def show(_session, path, _options):
        paths.append(path)

    monkeypatch.setattr("corral.cli.virtctl.vnc._show", show)
    assert run(["vnc", "web", "--proxy-only=true", "--preserve-session"]) == 0
    assert paths[0].endswith(
        "/namespaces/home/virtualmachineinstances/web/vnc?preserveSession=true"
    )
