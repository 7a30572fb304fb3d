"""The end of a console session, and its messages."""

import array
import asyncio
import fcntl
import os
import pty
import signal
import subprocess
import sys
import termios
import time

import pytest

from corral.cli.errors import Problem
from corral.cli.virtctl.console import _attach
from corral.client.stream import StreamLost


class Ending:
    """A stream that prints something, then ends by the given exception."""

    def __init__(self, error: Exception | None = None, close_reason: str = "") -> None:
        self._error = error
        self.close_reason = close_reason

    async def __aiter__(self):
        yield b"hello"
        if self._error is not None:
            raise self._error


class Listening:
    """A stream that prints nothing, and records its input."""

    close_reason = ""

    def __init__(self) -> None:
        self.sent = b""

    async def send(self, data: bytes) -> None:
        self.sent += data

    async def delivered(self) -> None:
        self.is_delivered = True

    async def __aiter__(self):
        await asyncio.Event().wait()
        yield b""


@pytest.fixture(autouse=True)
def open_stdin(monkeypatch):
    """Keep standard input open: its end would end the console."""
    reading, writing = os.pipe()
    with open(reading) as nothing:  # noqa: PTH123
        monkeypatch.setattr("sys.stdin", nothing)
        yield
    os.close(writing)


def test_the_end_of_the_stream_ends_the_console(capfdbinary):
    asyncio.run(_attach(Ending(), "web"))
    output = capfdbinary.readouterr()
    assert output.out == b"hello"
    assert b"Successfully connected to web console." in output.err


def test_the_reason_of_a_close_is_reported():
    with pytest.raises(Problem, match=r"^another client came$"):
        asyncio.run(_attach(Ending(close_reason="another client came"), "web"))


def test_a_lost_connection_is_reported():
    with pytest.raises(Problem, match="The console was disconnected"):
        asyncio.run(_attach(Ending(StreamLost("")), "web"))


def test_the_end_of_input_ends_the_console_once_all_is_sent(monkeypatch, tmp_path):
    file, machine = tmp_path / "input", Listening()
    file.write_bytes(b"typed\n" * 50_000)
    with file.open() as opened:
        monkeypatch.setattr("sys.stdin", opened)
        asyncio.run(asyncio.wait_for(_attach(machine, "web"), 60))
    assert machine.sent == file.read_bytes()
    assert machine.is_delivered


CHATTY = """
import asyncio, sys
from click.exceptions import Exit
from corral.cli.virtctl.console import _attach

class Chatty:
    close_reason = ""
    async def __aiter__(self):
        while True:
            yield b"x" * 10_000

try:
    asyncio.run(_attach(Chatty(), "web"))
except Exit as left:
    sys.exit(left.exit_code)
"""


KEPT_BYTES = 4095
"""Bytes of a terminal's output that Linux buffers for a reader.

Polling a terminal for room does not do: it may report room and wake no waiter.
"""


def _unread(terminal):
    count = array.array("i", [0])
    fcntl.ioctl(terminal, termios.FIONREAD, count)
    return count[0]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGQUIT, signal.SIGHUP])
def test_an_unread_terminal_is_restored(number):
    """The machine prints more than the terminal takes: a write that waits would wait for ever."""
    ours, theirs = pty.openpty()
    before = termios.tcgetattr(theirs)
    command = [sys.executable, "-P", "-c", CHATTY]
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs) as process:
        try:
            deadline = time.monotonic() + 60
            while termios.tcgetattr(theirs) == before or _unread(ours) < KEPT_BYTES:
                assert process.poll() is None, os.read(ours, 1 << 20)
                assert time.monotonic() < deadline, "the terminal did not fill"
                time.sleep(0.02)
            process.send_signal(number)
            assert process.wait(60) == 128 + number
            assert termios.tcgetattr(theirs) == before
        finally:
            process.kill()
    assert b"Traceback" not in os.read(ours, 1 << 20)
    os.close(ours)
    os.close(theirs)
