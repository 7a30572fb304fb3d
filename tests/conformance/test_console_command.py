"""``corral console`` at a terminal: every key counts at once, and Ctrl+] leaves."""

import os
import pty
import select
import signal
import subprocess
import sys
import termios
import time

import pytest
from tests.conformance.api import until
from tests.conformance.manifests import machine, machines

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(60)]


class Terminal:
    """A command that has a terminal of its own."""

    def __init__(self, command: list[str], environment: dict[str, str]) -> None:
        self._ours, theirs = pty.openpty()
        self.before = termios.tcgetattr(theirs)
        self._process = subprocess.Popen(
            command, env=environment, stdin=theirs, stdout=theirs, stderr=theirs, close_fds=True
        )
        self._theirs = theirs
        self._said = b""

    def settings(self) -> list:
        return termios.tcgetattr(self._theirs)

    def kill(self, number: int) -> None:
        self._process.send_signal(number)

    def type(self, keys: bytes) -> None:
        os.write(self._ours, keys)

    def read_until(self, text: bytes, seconds: float = 20) -> bytes:
        """What was said up to a text, and the text."""
        deadline = time.monotonic() + seconds
        while text not in self._said:
            left = deadline - time.monotonic()
            assert left > 0, f"{text!r} did not come, only {self._said!r}"
            if select.select([self._ours], [], [], left)[0]:
                self._said += os.read(self._ours, 4096)
        end = self._said.index(text) + len(text)
        said, self._said = self._said[:end], self._said[end:]
        return said

    def end(self) -> int:
        code = self._process.wait(20)
        assert self.settings() == self.before, "the terminal is not as it was"
        os.close(self._ours)
        os.close(self._theirs)
        return code


@pytest.fixture
def terminal(user, api, namespace):
    api.create(machines(namespace), machine("one"))
    path = machines(namespace, "one")
    until("it runs", lambda: api.get_document(path)["status"]["phase"] == "Running")
    command = [sys.executable, "-m", "corral", "console", "one", "-n", namespace]
    terminal = Terminal(command, user.one.environment())
    terminal.read_until(b"exit console.")
    yield terminal
    assert terminal._process.poll() is not None, "the command did not end"


def test_each_key_is_answered_before_the_next(terminal):
    terminal.read_until(b"login: ")
    for key in (b"a", b"b", b"c", b"d"):
        terminal.type(key)
        assert terminal.read_until(key, seconds=5) == key
    terminal.type(b"\x1d")
    assert terminal.end() == 0


def test_what_is_typed_before_the_escape_key_still_arrives(terminal):
    terminal.read_until(b"login: ")
    terminal.type(b"bye\x1dlost")
    assert terminal.end() == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT])
def test_a_signal_leaves_the_terminal_as_it_was(terminal, number):
    terminal.read_until(b"login: ")
    assert terminal.settings() != terminal.before
    terminal.kill(number)
    assert terminal.end() == 128 + number


def test_who_is_displaced_is_told_so(terminal, user, namespace):
    user.corral("console", "one", "-n", namespace, "--expect", "login:")
    terminal.read_until(b"error: another client came in its place")
    assert terminal.end() == 1
