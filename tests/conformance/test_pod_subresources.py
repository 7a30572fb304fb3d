"""Port-forward, exec and attach of pods, with each kubectl that is tried."""

import contextlib
import re
import socket
import subprocess
from collections.abc import Iterator

import pytest
from tests.conformance.api import PATIENCE, conditions, until
from tests.conformance.manifests import core, machine, machines

pytestmark = pytest.mark.conformance


@pytest.fixture
def pod(api, namespace) -> str:
    """The pod of a machine that runs, and whose agent has answered."""
    api.create(machines(namespace), machine("one"))
    path = machines(namespace, "one")

    def connected() -> bool:
        return "AgentConnected" in conditions(api.get_document(path))

    until("its agent is connected", connected)
    (pod,) = api.items(core("pods", namespace))
    return pod["metadata"]["name"]


def kubectl(shell, *arguments, typed=None):
    command = ["kubectl", *arguments]
    return subprocess.run(
        command, env=shell, input=typed, capture_output=True, text=True, timeout=120, check=False
    )


@contextlib.contextmanager
def forwarded(shell, target: str, port: int) -> Iterator[int]:
    """The local port at which kubectl forwards a port."""
    command = ["kubectl", "port-forward", target, f":{port}", "--address", "127.0.0.1"]
    process = subprocess.Popen(
        command, env=shell, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        said = process.stdout.readline()
        found = re.search(r"127\.0\.0\.1:(\d+)", said)
        assert found, said + process.stderr.read()
        yield int(found[1])
    finally:
        process.terminate()
        process.communicate()


def echoed(port: int, content: bytes) -> bytes:
    """What comes back of what is sent, to the end; hollow machines echo."""
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as connection:
        connection.sendall(content)
        connection.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: connection.recv(65536), b""))


def test_a_port_is_forwarded_for_many_connections(shell, pod):
    with forwarded(shell, f"pod/{pod}", 80) as port:
        for number in range(5):
            assert echoed(port, b"%d" % number) == b"%d" % number
        large = bytes(range(256)) * 8192
        assert echoed(port, large) == large


def test_several_connections_are_open_at_once(shell, pod):
    with forwarded(shell, f"pod/{pod}", 80) as port, contextlib.ExitStack() as stack:
        connections = [
            stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=PATIENCE))
            for _ in range(10)
        ]
        for number, connection in enumerate(connections):
            connection.sendall(b"%d" % number)
        assert [one.recv(10) for one in connections] == [b"%d" % n for n in range(10)]


def test_a_command_runs_and_its_exit_code_is_kubectls(shell, pod):
    ran = kubectl(shell, "exec", pod, "--", "uname", "-a")
    assert (ran.returncode, ran.stdout) == (0, "uname -a\n"), ran.stderr
    failed = kubectl(shell, "exec", pod, "-c", "compute", "--", "false")
    assert failed.returncode == 1
    assert "exit code 1" in failed.stderr


def test_input_reaches_the_command(shell, pod):
    ran = kubectl(shell, "exec", "-i", pod, "--", "cat", typed="typed words")
    assert ran.stdout == "cat\ntyped words", ran.stderr


def test_exec_and_port_forward_over_spdy(shell, pod):
    """As where a proxy does not let WebSockets pass: later clients fall back to it."""
    for part in ("REMOTE_COMMAND", "PORT_FORWARD"):
        shell[f"KUBECTL_{part}_WEBSOCKETS"] = "false"
    ran = kubectl(shell, "exec", "-i", pod, "-c", "compute", "--", "cat", typed="typed words")
    assert (ran.stdout, ran.stderr) == ("cat\ntyped words", "")
    assert kubectl(shell, "exec", pod, "-c", "compute", "--", "false").returncode == 1
    with forwarded(shell, f"pod/{pod}", 80) as port:
        assert echoed(port, bytes(100_000)) == bytes(100_000)


def test_errors_of_attach_and_of_helper_containers_say_why(shell, pod):
    attached = kubectl(shell, "attach", pod)
    assert attached.returncode != 0
    assert "corral console one" in attached.stderr
    disk = kubectl(shell, "exec", pod, "-c", "volumedisk", "--", "ls")
    assert "stands for a part of the machine only" in disk.stderr


def test_no_command_runs_in_a_paused_machine(api, shell, pod, namespace):
    vmi = machines(namespace, "one").replace("/kubevirt.io/", "/subresources.kubevirt.io/")
    assert api.put(f"{vmi}/pause").is_success
    until(
        "it is paused", lambda: "Paused" in conditions(api.get_document(machines(namespace, "one")))
    )
    refused = kubectl(shell, "exec", pod, "--", "ls")
    assert "one is paused" in refused.stderr


def test_exec_in_a_pending_pod_is_refused(api, shell, namespace):
    api.create(machines(namespace), machine("waiting", nodeSelector={"nosuch": "node"}))
    until("its pod is there", lambda: api.items(core("pods", namespace)))
    (pod,) = api.items(core("pods", namespace))
    refused = kubectl(shell, "exec", pod["metadata"]["name"], "--", "ls")
    assert "is not running" in refused.stderr
