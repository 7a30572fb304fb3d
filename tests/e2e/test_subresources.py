"""Subresources of one real machine and of its pod, as kubectl and corral use them."""

import asyncio
import contextlib
import json
import os
import re
import struct
import subprocess
import urllib.request
from collections.abc import Iterator

import pytest
from tests.cluster import Outside, outside, ranges, until
from tests.conformance.api import Api
from tests.console import console
from tests.terminal import Terminal
from websockets import Subprotocol
from websockets.asyncio.client import connect

from corral.client.kubeconfig import load

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1800)]

NAME = "one"
REFERENCE = "kubevirt/cirros-container-disk-demo:latest"
SUBRESOURCES = (
    f"/apis/subresources.kubevirt.io/v1/namespaces/default/virtualmachineinstances/{NAME}"
)
MACHINE = {
    "apiVersion": "kubevirt.io/v1",
    "kind": "VirtualMachineInstance",
    "metadata": {"name": NAME, "labels": {"app": NAME}},
    "spec": {
        "domain": {
            "memory": {"guest": "128Mi"},
            "devices": {
                "disks": [{"name": "root", "disk": {"bus": "virtio"}}],
                "interfaces": [{"name": "default", "masquerade": {}}],
            },
        },
        "networks": [{"name": "default", "pod": {}}],
        "readinessProbe": {"httpGet": {"port": 80}, "periodSeconds": 1, "failureThreshold": 2},
        "volumes": [{"name": "root", "containerDisk": {"image": REFERENCE}}],
    },
}


@pytest.fixture(scope="module")
def user(demo_disk, tmp_path_factory) -> Iterator[Outside]:
    with outside(*ranges(__file__), directory=tmp_path_factory.mktemp("corral")) as user:
        user.corral("image", "import", str(demo_disk), REFERENCE)
        user.kubectl("create", "-f", "-", input=json.dumps(MACHINE))
        until("its web server answers the probe", lambda: condition(user, "Ready") == "True")
        until("its agent has answered", lambda: condition(user, "AgentConnected") == "True")
        yield user


@pytest.fixture
def api(user) -> Iterator[Api]:
    with Api(user.one.directory / "kubeconfig") as api:
        yield api


def condition(user: Outside, name: str) -> str | None:
    conditions = user.get("vmi", NAME).get("status", {}).get("conditions", [])
    return next((one["status"] for one in conditions if one["type"] == name), None)


def pod_of(user: Outside) -> str:
    (pod,) = user.items("pods", "-l", f"app={NAME}")
    return pod["metadata"]["name"]


@contextlib.contextmanager
def forwarded(user: Outside, target: str, port: int) -> Iterator[int]:
    """The local port at which kubectl forwards one."""
    command = [user.kubectl_program, "port-forward", target, f":{port}"]
    process = subprocess.Popen(
        command,
        env=user.one.environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        said = process.stdout.readline()
        found = re.search(r"127\.0\.0\.1:(\d+)", said)
        assert found, said
        yield int(found[1])
    finally:
        process.terminate()
        process.communicate()


def test_ports_are_forwarded(user):
    with forwarded(user, f"pod/{pod_of(user)}", 80) as port:
        for _ in range(3):
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=60) as answer:
                assert answer.read().strip() == NAME.encode()


def test_commands_run_in_the_guest(user):
    pod = pod_of(user)
    assert user.kubectl("exec", pod, "--", "hostname").strip() == NAME
    echoed = user.kubectl("exec", "-i", pod, "--", "tr", "a-z", "A-Z", input="loud")
    assert echoed.strip() == "LOUD"
    failed = user.kubectl("exec", pod, "--", "sh", "-c", "exit 7", check=False)
    assert "exit code 7" in failed
    unknown = user.kubectl("exec", pod, "--", "nosuch", check=False)
    assert "executable file not found" in unknown
    assert "exit code 127" in unknown


@pytest.mark.parametrize("websockets", ["true", "false"])
def test_files_are_copied_in_and_out(user, tmp_path, monkeypatch, websockets):
    """Without websockets kubectl speaks SPDY, as it did before version 1.31."""
    monkeypatch.setenv("KUBECTL_REMOTE_COMMAND_WEBSOCKETS", websockets)
    source, back, there = tmp_path / "in", tmp_path / "out", f"{pod_of(user)}:/tmp/copied"
    source.write_bytes(os.urandom(300_000))
    user.kubectl("cp", "-c", "compute", str(source), there)
    user.kubectl("cp", "-c", "compute", there, str(back))
    assert back.read_bytes() == source.read_bytes()


def test_ssh_without_a_command_opens_a_shell(user):
    command = user.corral_command(
        "ssh", "-t", "-o StrictHostKeyChecking=no", "--known-hosts", "/dev/null",
        f"cirros@vmi/{NAME}",
    )  # fmt: skip
    terminal = Terminal(command, user.corral_environment())
    terminal.read_until(b"password: ")
    terminal.type(b"gocubsgo\n")
    terminal.read_until(f"{NAME}:~# ".encode())
    terminal.type(b"tty\n")
    terminal.read_until(b"/dev/pts/")
    terminal.type(b"exit\n")
    assert terminal.end() == 0


def test_input_piped_to_the_console_reaches_the_guest(user):
    """A serial port holds 16 bytes, and the command that sent a thousand lines has ended."""

    async def log_in() -> None:
        async with console(user, NAME) as line:
            await line.log_in("cirros", "gocubsgo")

    asyncio.run(log_in())
    lines = "".join(f"echo {number} >> /tmp/typed\n" for number in range(1000))
    user.corral("console", NAME, input=lines)
    read = ("exec", pod_of(user), "--", "cat", "/tmp/typed")
    expected = [str(number) for number in range(1000)]
    until("all is typed", lambda: user.kubectl(*read, check=False).split() == expected)


def test_guest_info_is_served(api):
    info = api.get_document(f"{SUBRESOURCES}/guestosinfo")
    assert info["hostname"] == NAME
    assert info["os"]["kernelRelease"]
    assert info["guestAgentVersion"]
    mounted = api.get_document(f"{SUBRESOURCES}/filesystemlist")["items"]
    assert all(one["totalBytes"] >= one["usedBytes"] for one in mounted)
    assert mounted
    assert api.get_document(f"{SUBRESOURCES}/userlist")["items"] is not None


async def test_the_screen_is_served_by_vnc(user, api):
    picture = api.get(f"{SUBRESOURCES}/vnc/screenshot", params={"moveCursor": "true"}).content
    assert picture[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", picture[16:24])
    target = load(user.one.directory / "kubeconfig")
    opened = connect(
        f"wss{target.server.removeprefix('https')}{SUBRESOURCES}/vnc",
        ssl=target.tls(),
        additional_headers=dict(target.headers),
        subprotocols=[Subprotocol("plain.kubevirt.io")],
        proxy=None,
        compression=None,
        open_timeout=60,
    )
    async with asyncio.timeout(120), opened as screen:
        assert await screen.recv() == b"RFB 003.008\n"
        await screen.send(b"RFB 003.008\n")
        assert await screen.recv() == b"\x01\x01", "one way to log in: none"
        await screen.send(b"\x01")
        assert await screen.recv() == b"\0\0\0\0"
        await screen.send(b"\x01")
        said = await screen.recv()
        assert isinstance(said, bytes)
        assert struct.unpack(">HH", said[:4]) == (width, height)


def test_a_paused_vmi_is_not_ready(user, api):
    assert api.put(f"{SUBRESOURCES}/pause").status_code == 200
    until("it is reported", lambda: condition(user, "Paused") == "True")
    until("it is not ready", lambda: condition(user, "Ready") == "False")
    again = api.put(f"{SUBRESOURCES}/pause")
    assert (again.status_code, again.json()["reason"]) == (409, "Conflict")
    assert "already paused" in again.json()["message"]
    assert api.put(f"{SUBRESOURCES}/unpause").status_code == 200
    until("it is ready again", lambda: condition(user, "Ready") == "True")
    assert condition(user, "Paused") is None


def test_disks_are_frozen_and_thawed(api):
    assert api.put(f"{SUBRESOURCES}/freeze", json={"unfreezeTimeout": "1m"}).status_code == 200
    assert api.get_document(f"{SUBRESOURCES}/guestosinfo")["fsFreezeStatus"] in ("frozen", "thawed")
    assert api.put(f"{SUBRESOURCES}/unfreeze").status_code == 200
    assert api.get_document(f"{SUBRESOURCES}/guestosinfo")["fsFreezeStatus"] == "thawed"


def test_readiness_follows_the_web_server(user):
    pod = pod_of(user)
    user.kubectl("exec", pod, "--", "killall", "httpd")
    until("it is not ready", lambda: condition(user, "Ready") == "False")
    of_pod = ("get", "events", "--field-selector", f"involvedObject.name={pod}")
    until("it is reported", lambda: "Readiness probe failed" in user.kubectl(*of_pod))
    user.kubectl("exec", pod, "--", "httpd", "-p", "80", "-h", "/srv/www")
    until("it is ready again", lambda: condition(user, "Ready") == "True")


def boot_of(user: Outside) -> str:
    """Return the boot id of the guest; another text while its agent is away."""
    path = "/proc/sys/kernel/random/boot_id"
    return user.kubectl("exec", pod_of(user), "--", "cat", path, check=False).strip()


def starts_again(user: Outside, api: Api, way: str, before: str) -> None:
    assert api.put(f"{SUBRESOURCES}/{way}").status_code == 200

    def other() -> bool:
        now = boot_of(user)
        return len(now) == len(before) and now != before

    until("another boot", other)
    status = user.get("vmi", NAME)["status"]
    assert status["phase"] == "Running"
    assert "Paused" not in {one["type"] for one in status["conditions"]}


@pytest.mark.parametrize("way", ["softreboot", "reset"])
def test_a_guest_is_rebooted(user, api, way):
    starts_again(user, api, way, boot_of(user))


def test_without_an_agent_the_power_button_reboots_it(user, api):
    before = boot_of(user)
    # Killed: its handler of SIGTERM takes a lock of GLib, which the interrupted code may hold.
    user.kubectl("exec", pod_of(user), "--", "killall", "-KILL", "qemu-ga", check=False)
    until("its agent has gone", lambda: condition(user, "AgentConnected") is None)
    starts_again(user, api, "softreboot", before)
