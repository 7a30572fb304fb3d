"""``corral console`` at a terminal: every key counts at once, and Ctrl+] leaves."""

import signal
import subprocess
import sys

import pytest
from tests.conformance.api import PATIENCE, until
from tests.conformance.manifests import machine, machines
from tests.terminal import Terminal

pytestmark = pytest.mark.conformance


@pytest.fixture
def command(api, namespace):
    api.create(machines(namespace), machine("one"))
    path = machines(namespace, "one")
    until("it runs", lambda: api.get_document(path)["status"]["phase"] == "Running")
    return [sys.executable, "-m", "corral", "console", "one", "-n", namespace]


@pytest.fixture
def terminal(user, command):
    terminal = Terminal(command, user.one.environment())
    terminal.read_until(b"exit console.")
    yield terminal
    assert terminal._process.poll() is not None, "the command did not end"


def test_keys_are_sent_one_by_one(terminal):
    terminal.read_until(b"login: ")
    for key in (b"a", b"b", b"c", b"d"):
        terminal.type(key)
        assert terminal.read_until(key) == key
    terminal.type(b"\x1d")
    assert terminal.end() == 0


def test_input_before_the_escape_key_is_sent(terminal):
    terminal.read_until(b"login: ")
    terminal.type(b"bye\x1dlost")
    assert terminal.end() == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT])
def test_a_signal_restores_the_terminal(terminal, number):
    terminal.read_until(b"login: ")
    assert terminal.settings() != terminal.before
    terminal.kill(number)
    assert terminal.end() == 128 + number


def test_a_displaced_client_is_informed(terminal, user, namespace):
    user.corral("console", "one", "-n", namespace, "--expect", "login:")
    terminal.read_until(b"error: The console was disconnected.  Either another client opened")
    assert terminal.end() == 1


def test_without_input_it_ends(user, command):
    done = subprocess.run(
        command, env=user.one.environment(), stdin=subprocess.DEVNULL, capture_output=True,
        timeout=PATIENCE, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert b"Successfully connected" in done.stderr
