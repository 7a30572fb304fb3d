"""Machines with addresses, as root and as anybody: who reaches whom, who may not, what outlives."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import ip_address, ip_network
from pathlib import Path

import pytest
from tests.cluster import PATIENCE, Outside, outside, ranges, until
from tests.console import console
from tests.e2e.test_network_session import (
    answers,
    ask,
    cluster_ip,
    corral_forwards,
    endpoints,
    kubectl_forwards,
    nothing_is_left,
    of_directory,
)

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

USERS = ("root", "ordinary") if os.geteuid() == 0 else ("ordinary",)
REFERENCE = "kubevirt/cirros-container-disk-demo:latest"
RANGES = ranges(__file__)
FORMER = "10.219.0.9"
"""An address that is nobody's."""

WEB = {
    "apiVersion": "v1",
    "kind": "Service",
    "metadata": {"name": "web"},
    "spec": {"type": "NodePort", "selector": {"app": "web"}, "ports": [{"port": 80}]},
}

HOLD = """
import socket, sys
line = socket.create_connection((sys.argv[1], 22), 300).makefile("rwb")
print(line.readline().decode(), end="", flush=True)
sys.stdin.readline()
line.write(b"SSH-2.0-test\\r\\n")
line.flush()
print(len(line.read(32)), flush=True)
"""
"""Opens a connection to a guest's SSH server, and goes on with it at a line on its input."""


class Play:
    """A manager, its machines, and the namespace that they are joined in."""

    def __init__(self, user: Outside) -> None:
        self.user = user
        self.pods = ip_network(RANGES[1])

    def machine(self, name: str, app: str, binding: str, **interface) -> None:
        document = {
            "apiVersion": "kubevirt.io/v1",
            "kind": "VirtualMachineInstance",
            "metadata": {"name": name, "labels": {"app": app}},
            "spec": {
                "terminationGracePeriodSeconds": 0,
                "domain": {
                    "memory": {"guest": "64M"},
                    "devices": {
                        "rng": {},
                        "disks": [
                            {"name": each, "disk": {"bus": "virtio"}} for each in ("root", "seed")
                        ],
                        "interfaces": [{"name": "default", binding: {}, **interface}],
                    },
                },
                "networks": [{"name": "default", "pod": {}}],
                "volumes": [
                    {"name": "root", "containerDisk": {"image": REFERENCE}},
                    {
                        "name": "seed",
                        "cloudInitNoCloud": {"userData": "#cloud-config\npassword: gocubsgo\n"},
                    },
                ],
            },
        }
        self.user.kubectl("create", "-f", "-", input=json.dumps(document))

    def address(self, name: str) -> str:
        return self.user.get("vmi", name)["status"]["interfaces"][0]["ipAddress"]

    def inside(self, *command: str) -> list[str]:
        """A command as one that runs in the machines' namespace."""
        written = self.user.one.directory / "network" / "holder" / "process.json"
        pid = json.loads(written.read_text())["pid"]
        user = [] if os.geteuid() == 0 else ["--user", "--preserve-credentials"]
        return ["nsenter", "--target", str(pid), *user, "--net", "--", *command]

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.inside(*command), capture_output=True, text=True, timeout=PATIENCE, check=False
        )

    def says(self, name: str, port: int, seconds: int = 60) -> str:
        """Return the first line of a guest's server, or the error."""
        ask = f"exec 3<>/dev/tcp/{self.address(name)}/{port} && head -n 1 <&3"
        done = self.run("timeout", str(seconds), "bash", "-c", ask)
        return done.stdout or done.stderr

    def guest_of(self, name: str) -> int:
        """The process that runs an instance."""
        uid = self.user.get("vmi", name)["metadata"]["uid"]
        directory = next(self.user.one.directory.glob(f"nodes/*/machines/{uid}"))
        return json.loads((directory / "process.json").read_text())["pid"]

    def types(self, name: str, *commands: str) -> list[str]:
        """Type commands at a guest's console; answers what each printed."""
        return asyncio.run(self._type(name, commands))

    async def _type(self, name: str, commands: tuple[str, ...]) -> list[str]:
        async with console(self.user, name) as opened:
            await opened.log_in("cirros", "gocubsgo")
            return [
                await opened.types(
                    f"{command}; echo done $(({number}+100))", f"done {number + 100}"
                )
                for number, command in enumerate(commands)
            ]


@contextmanager
def acting_as(name: str) -> Iterator[tuple[str, ...]]:
    """A command that runs others as a user; an ordinary one is the same whenever it is used."""
    if name == "root" or os.geteuid() != 0:
        yield ()
        return
    command = ["unshare", "--user", "--map-user=1000", "--map-group=1000", "--", "sh", "-c"]
    with subprocess.Popen([*command, "echo; exec sleep infinity"], stdout=subprocess.PIPE) as user:
        assert user.stdout is not None
        user.stdout.readline()
        enter = ("nsenter", "--target", str(user.pid), "--user")
        yield (*enter, "--setuid", "1000", "--setgid", "1000", "--")
        user.kill()


@pytest.fixture(params=USERS, scope="module")
def play(request, demo_disk, tmp_path_factory):
    directory = tmp_path_factory.mktemp("corral")
    with acting_as(request.param) as through:
        with outside(*RANGES, directory=directory, through=through) as user:
            user.corral("image", "import", str(demo_disk), REFERENCE)
            play = Play(user)
            play.machine("private", "web", "masquerade")
            play.machine("ported", "ssh", "masquerade", ports=[{"port": 22}])
            play.machine("bridged", "web", "bridge")
            until("three guests have introduced themselves", lambda: len(introduced(user)) == 3)
            yield play
        nothing_is_left(directory)


def introduced(user: Outside) -> list[dict]:
    return [
        vmi
        for vmi in user.items("vmi")
        for card in vmi.get("status", {}).get("interfaces", [])[:1]
        if "guest-agent" in card["infoSource"]
    ]


def test_every_vmi_has_an_address_in_all_objects(play):
    vmis = {vmi["metadata"]["name"]: vmi for vmi in play.user.items("vmi")}
    cards = {name: vmi["status"]["interfaces"][0] for name, vmi in vmis.items()}
    addresses = {name: card["ipAddress"] for name, card in cards.items()}
    assert len(set(addresses.values())) == 3
    assert all(ip_address(one) in play.pods for one in addresses.values())
    pods = {pod["metadata"]["ownerReferences"][0]["name"]: pod for pod in play.user.items("pods")}
    assert {name: pod["status"]["podIP"] for name, pod in pods.items()} == addresses
    listed = play.user.kubectl("get", "vmi", "--no-headers").splitlines()
    assert {line.split()[0]: line.split()[3] for line in listed} == addresses
    assert all(card["podInterfaceName"] == "eth0" for card in cards.values())
    assert cards["private"]["interfaceName"] == "eth0"


def test_the_guest_of_a_masquerade_has_a_private_address_by_dhcp(play):
    said = play.types("private", "ip -4 address show eth0", "ip route", "cat /etc/resolv.conf")
    assert "10.0.2.2/24" in said[0]
    assert "default via 10.0.2.1" in said[1]
    assert "search default.svc.cluster.local svc.cluster.local cluster.local" in said[2]
    assert f"nameserver {ip_network(RANGES[3])[10]}" in said[2]


def test_a_bridged_guest_has_the_pods_address_by_dhcp(play):
    said = play.types("bridged", "ip -4 address show eth0", "ip route")
    assert f"{play.address('bridged')}/16" in said[0]
    assert f"default via {play.pods[1]}" in said[1]


@pytest.mark.parametrize("name", ["private", "ported", "bridged"])
def test_guests_are_reachable_at_the_addresses_of_their_pods(play, name):
    assert play.says(name, 22).startswith("SSH-2.0-")


def test_only_declared_ports_reach_a_guest(play):
    assert "refused" in play.says("ported", 80)
    ask = (
        "import http.client as h; c = h.HTTPConnection('{}', 80, timeout=60); c.request('GET', '/')"
    )
    for name in ("private", "bridged"):
        done = play.run(sys.executable, "-c", ask.format(play.address(name)))
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("source", ["private", "bridged"])
def test_guests_can_connect_to_each_other(play, source):
    for target in {"private", "ported", "bridged"} - {source}:
        hello = f"nc -w 60 {play.address(target)} 22 </dev/null"
        assert "SSH-2.0-" in play.types(source, hello)[0], (source, target)


@pytest.mark.parametrize("source", ["private", "bridged"])
def test_ip_addresses_cannot_be_spoofed(play, source):
    target = play.address("private" if source == "bridged" else "bridged")
    forged = [play.address("ported"), FORMER]
    said = play.types(
        source,
        *(f"ip address add {one}/32 dev eth0" for one in forged),
        *(f"ping -c 1 -W 1 -I {one} {target}" for one in forged),
        *(f"ip address del {one}/32 dev eth0" for one in forged),
        f"ping -c 1 -W 60 {target}",
    )
    assert "1 packets transmitted, 0 packets received" in said[2]
    assert "1 packets transmitted, 0 packets received" in said[3]
    assert "1 packets transmitted, 1 packets received" in said[6]


def test_mac_addresses_cannot_be_spoofed(play):
    ping = "ping -c 1 -W {} " + play.address("bridged")
    card = play.user.get("vmi", "private")["status"]["interfaces"][0]["mac"]
    said = play.types(
        "private",
        "ip link set eth0 address 02:00:00:00:00:09",
        ping.format(1),
        f"ip link set eth0 address {card}",
        ping.format(60),
    )
    assert "0 packets received" in said[1]
    assert "1 packets received" in said[3]


def test_services_are_reached_by_forwarded_ports_names_and_node_ports(play):
    user = play.user
    user.kubectl("create", "-f", "-", input=json.dumps(WEB))
    until("both guests are endpoints", lambda: len(endpoints(user, "web")) == 2)
    with kubectl_forwards(user, "svc/web", ":80") as port:
        assert ask("127.0.0.1", port) in ("private", "bridged")
    with corral_forwards(user, "vmi/bridged", "0:80") as port:
        assert ask("127.0.0.1", port) == "bridged"
    # In capitals, as the name of the guest is in its prompt.
    said = play.types("private", "nslookup web", "wget -qO- http://web | tr a-z A-Z")
    assert cluster_ip(user, "web") in said[0]
    assert "PRIVATE" in said[1] or "BRIDGED" in said[1]
    port = user.get("svc", "web")["spec"]["ports"][0]["nodePort"]
    until("the node's port answers", lambda: answers(port))
    assert {ask("127.0.0.1", port) for _ in range(30)} == {"private", "bridged"}
    assert of_directory(user.one.directory)


def test_connections_outlive_the_manager_and_damage_is_repaired(play):
    names = ("private", "bridged")
    held = {name: hold(play, name) for name in names}
    processes = {name: play.guest_of(name) for name in (*names, "ported")}
    play.user.kill_manager()
    if os.geteuid() == 0:  # nobody else has a program that may do this
        remove_link(play, recorded_address(play, "ported"))
    with outside(*RANGES, directory=play.user.one.directory, through=play.user.through) as again:
        play.user = again
        answers = lambda: play.says("ported", 22, 10).startswith("SSH-2.0-")  # noqa: E731
        until("a broken link is mended", answers)
        assert {name: play.guest_of(name) for name in processes} == processes
        for name, process in held.items():
            said, errors = process.communicate("go on\n", timeout=PATIENCE)
            assert said.strip() == "32", (name, errors)
        if os.geteuid() == 0:
            remove_link(play, play.address("ported"))
            until("it is mended again", answers)
        lease = play.types("private", "udhcpc -f -n -q -i eth0 2>&1")
        assert "lease of 10.0.2.2 obtained" in lease[0]
        for name in processes:
            again.kubectl("delete", "vmi", name)
        until("their links are gone", lambda: "pod" not in play.run("ip", "-br", "link").stdout)


def hold(play: Play, name: str) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        play.inside(sys.executable, "-c", HOLD, play.address(name)),
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline().startswith("SSH-2.0-")
    return process


def remove_link(play: Play, address: str) -> None:
    link = play.run("ip", "route", "get", address).stdout.split("dev ")[1].split()[0]
    assert play.run("ip", "link", "delete", link).returncode == 0


def recorded_address(play: Play, name: str) -> str:
    """An address as it is on record, while no API answers."""
    for path in Path(play.user.one.directory).glob("nodes/*/machines/*/machine.json"):
        record = json.loads(path.read_text().splitlines()[-1])
        if record["instance"] == name:
            return record["addresses"][0]
    raise AssertionError(name)
