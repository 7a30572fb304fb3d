"""Addresses, Services, DNS names and subresources of the machines of a replica set.

What an ordinary user has of it is in ``test_addresses``.
"""

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from http.client import HTTPException
from pathlib import Path
from typing import Self

import pytest
import yaml
from tests.cluster import EXAMPLES, PATIENCE, Outside, outside, ranges, until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1800)]

SET = "testreplicaset"
SET_KIND = "VirtualMachineInstanceReplicaSet"
REFERENCE = "kubevirt/cirros-container-disk-demo:latest"
RANGES = ranges(__file__)
PODS = RANGES[1].removesuffix("0.0/16")
"""The beginning of the machines' addresses."""
REQUESTS = 90
FAIR_SHARE = 12
"""Of 90 requests to three replicas, each answers 30, four standard deviations more or less."""

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="the host's routes belong to root")


@pytest.fixture(scope="module")
def askpass(tmp_path_factory) -> dict[str, str]:
    """Return the environment in which ssh logs in by the demo guest's password."""
    program = tmp_path_factory.mktemp("askpass") / "askpass"
    program.write_text("#!/bin/sh\necho gocubsgo\n")
    program.chmod(0o755)
    return {"SSH_ASKPASS": str(program), "SSH_ASKPASS_REQUIRE": "force"}


@pytest.fixture(scope="module")
def user(demo_disk, tmp_path_factory) -> Iterator[Outside]:
    with outside(*RANGES, directory=tmp_path_factory.mktemp("corral")) as user:
        serve(user, demo_disk)
        yield user


def serve(user: Outside, demo_disk: Path) -> None:
    """Create three machines, ready when their web servers answer, and their Service ``web``."""
    user.corral("image", "import", str(demo_disk), REFERENCE)
    document = yaml.safe_load((EXAMPLES / f"{SET}.yaml").read_text())
    # Who is slow because others that boot have the processors is ready all the same.
    probe = {"httpGet": {"port": 80}, "periodSeconds": 1, "timeoutSeconds": 20}
    document["spec"]["template"]["spec"]["readinessProbe"] = probe
    user.kubectl("create", "-f", "-", input=json.dumps(document))
    said = user.corral("expose", "vmirs", SET, "--name", "web", "--port", "80")
    assert said == f"Service web successfully created for vmirs {SET}\n"
    until("the machines are ready", lambda: len(endpoints(user, "web")) == 3)


def names(user: Outside) -> list[str]:
    return sorted(vmi["metadata"]["name"] for vmi in user.items("vmi"))


def endpoints(user: Outside, service: str) -> set[str]:
    """The addresses that new connections to a Service may go to."""
    slices = user.items("endpointslices", "-l", f"kubernetes.io/service-name={service}")
    return {
        address
        for each in slices
        for endpoint in each.get("endpoints") or ()
        if endpoint["conditions"].get("ready")
        for address in endpoint["addresses"]
    }


def cluster_ip(user: Outside, service: str) -> str:
    return user.get("svc", service)["spec"]["clusterIP"]


def ask(address: str, port: int = 80, seconds: float = 60) -> str:
    """Return the machine that answers a new connection: the demo guest serves its name."""
    url = f"http://{address}:{port}/"
    with urllib.request.urlopen(url, timeout=seconds) as answer:
        return answer.read().decode().strip()


def in_guest(user: Outside, askpass: dict[str, str], name: str, command: str) -> str:
    """Run a command in a guest by ``corral ssh``; answers what it printed."""
    done = subprocess.run(
        user.corral_command(
            "ssh", "-t", "-o StrictHostKeyChecking=no", "-t", "-o LogLevel=ERROR",
            "--known-hosts", str(user.one.directory / "known_hosts"),
            "-c", command, f"cirros@vmi/{name}",
        ),
        env=user.corral_environment() | askpass,
        capture_output=True, text=True, timeout=PATIENCE, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@contextlib.contextmanager
def forwarding(command: list[str], environment: dict[str, str], pattern: str) -> Iterator[int]:
    """A command that forwards a port; answers the local one, which it prints."""
    with subprocess.Popen(
        command, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            found = re.search(pattern, line)
            assert found, line
            yield int(found[1])
        finally:
            process.send_signal(signal.SIGINT)
            assert process.wait(PATIENCE) in (0, 1, 130), "kubectl ends with 1 or 130"


def kubectl_forwards(user: Outside, what: str, ports: str) -> contextlib.AbstractContextManager:
    command = [user.kubectl_program, "port-forward", what, ports]
    return forwarding(command, user.one.environment(), r"127\.0\.0\.1:(\d+) ->")


def corral_forwards(user: Outside, what: str, ports: str) -> contextlib.AbstractContextManager:
    command = user.corral_command("port-forward", what, ports)
    return forwarding(command, user.corral_environment(), r"127\.0\.0\.1:(\d+) to")


def of_directory(directory: Path) -> set[int]:
    """The processes that hold a file of a data directory open: all that belongs to it."""
    found = set()
    for process in Path("/proc").glob("[0-9]*"):
        if int(process.name) == os.getpid():
            continue  # keeps the manager's log
        with contextlib.suppress(OSError):
            if any(str(each.readlink()).startswith(str(directory)) for each in
                   (process / "fd").iterdir()):  # fmt: skip
                found.add(int(process.name))
    return found


def said_by(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_every_vmi_has_its_own_address(user):
    addresses = [vmi["status"]["interfaces"][0]["ipAddress"] for vmi in user.items("vmi")]
    assert len(set(addresses)) == 3
    assert all(address.startswith(PODS) for address in addresses)
    assert {pod["status"]["podIP"] for pod in user.items("pods")} == set(addresses)
    assert endpoints(user, "web") == set(addresses)
    shown = re.search(r"^web +(\S+)", user.kubectl("get", "endpoints"), re.MULTILINE)
    assert shown
    assert set(shown[1].split(",")) == {f"{address}:80" for address in addresses}


@needs_root
def test_requests_are_spread_over_the_replicas(user):
    address = cluster_ip(user, "web")
    counts = Counter(ask(address) for _ in range(REQUESTS))
    assert set(counts) == set(names(user))
    assert min(counts.values()) >= FAIR_SHARE, counts


@needs_root
def test_the_command_of_the_user_guide(user, askpass):
    user.corral(
        "expose", "vmirs", SET, "--name", "vmiservice", "--port", "27017", "--target-port", "22"
    )
    until("the Service has endpoints", lambda: len(endpoints(user, "vmiservice")) == 3)
    done = subprocess.run(
        ["ssh", "-p", "27017", "-o", "StrictHostKeyChecking=no", "-o",
         "UserKnownHostsFile=/dev/null", f"cirros@{cluster_ip(user, 'vmiservice')}", "hostname"],
        env=os.environ | askpass, capture_output=True, text=True, timeout=PATIENCE, check=False,
    )  # fmt: skip
    assert done.stdout.strip() in names(user), done.stderr


def test_a_service_is_deleted_with_its_owner(user):
    owner = user.get("svc", "web")["metadata"]["ownerReferences"][0]
    assert (owner["kind"], owner["name"]) == ("VirtualMachineInstanceReplicaSet", SET)


def test_ssh_and_scp(user, askpass, tmp_path):
    name = names(user)[0]
    assert in_guest(user, askpass, name, "hostname").strip() == name
    (tmp_path / "sent").write_bytes(os.urandom(300_000))
    options = ("-t", "-o StrictHostKeyChecking=no",
               "--known-hosts", str(user.one.directory / "known_hosts"))  # fmt: skip
    for source, destination in (
        (str(tmp_path / "sent"), f"cirros@vmi/{name}:/tmp/file"),
        (f"cirros@vmi/{name}:/tmp/file", str(tmp_path / "received")),
    ):
        subprocess.run(
            user.corral_command("scp", *options, source, destination),
            env=user.corral_environment() | askpass, check=True, timeout=PATIENCE,
        )  # fmt: skip
    assert (tmp_path / "received").read_bytes() == (tmp_path / "sent").read_bytes()


def test_forwarded_ports(user):
    name = names(user)[0]
    with corral_forwards(user, f"vmi/{name}", "0:80") as port:
        assert [ask("127.0.0.1", port) for _ in range(3)] == [name] * 3
    with corral_forwards(user, f"vmi/{name}", "0:9") as port, pytest.raises(OSError):  # noqa: PT011
        ask("127.0.0.1", port)
    pod = next(each["metadata"]["name"] for each in user.items("pods") if name in str(each))
    with kubectl_forwards(user, f"pod/{pod}", ":80") as port:
        assert ask("127.0.0.1", port) == name
    with kubectl_forwards(user, "svc/web", ":80") as port:
        assert ask("127.0.0.1", port) in names(user)


def test_names_in_a_guest(user, askpass):
    name = names(user)[0]
    assert cluster_ip(user, "web") in in_guest(user, askpass, name, "nslookup web || true")
    assert in_guest(user, askpass, name, "wget -qO- http://web").strip() in names(user)
    user.corral("expose", "vmirs", SET, "--name", "members", "--port", "80", "--cluster-ip", "None")
    until("the Service has endpoints", lambda: len(endpoints(user, "members")) == 3)
    said = in_guest(user, askpass, name, "nslookup members || true")
    assert all(address in said for address in endpoints(user, "members")), said


def test_a_guest_is_paused_and_resumed(user):
    name = names(user)[0]
    address = user.get("vmi", name)["status"]["interfaces"][0]["ipAddress"]
    assert user.corral("pause", "vmi", name) == f"VMI {name} was scheduled to pause\n"
    until("it is paused", lambda: "Paused" in str(user.get("vmi", name)["status"]["conditions"]))
    until("no connection goes to it", lambda: address not in endpoints(user, "web"))
    assert user.corral("unpause", "vmi", name) == f"VMI {name} was scheduled to unpause\n"
    until("it is back", lambda: address in endpoints(user, "web"))


def led_by(user: Outside) -> str:
    """The rules by which the kernel leads connections to Services."""
    holder = user.one.directory / "network" / "holder" / "process.json"
    inside = f"--net=/proc/{json.loads(holder.read_text())['pid']}/ns/net"
    return said_by("nsenter", inside, "nft", "list", "table", "inet", "corral_services")


class Asking:
    """Asks a Service for as long as the block runs, one connection after the other."""

    def __init__(self, address: str) -> None:
        self.asked: list[tuple[float, str]] = []
        self._address = address
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._ask)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _ask(self) -> None:
        while not self._over.is_set():
            begun = time.monotonic()
            try:
                answer = ask(self._address)
            except (OSError, HTTPException) as error:
                answer = f"failed: {error}"
            self.asked.append((begun, answer))


@needs_root
def test_a_terminating_replica_gets_no_new_connections(user):
    victim = names(user)[0]
    address = user.get("vmi", victim)["status"]["interfaces"][0]["ipAddress"]
    with Asking(cluster_ip(user, "web")) as asking:
        until("it answers", lambda: victim in {answer for _, answer in asking.asked})
        user.kubectl("delete", "vmi", victim, "--wait=false")
        until("its endpoint is gone", lambda: address not in endpoints(user, "web"))
        until("the kernel knows", lambda: address not in led_by(user))
        gone = time.monotonic()
        until("the set is whole again", lambda: len(endpoints(user, "web")) == 3)
        until(
            "its successor answers",
            lambda: {answer for _, answer in asking.asked[-60:]} >= set(names(user)),
        )
    later = [(begun - gone, answer) for begun, answer in asking.asked if begun > gone]
    wrong = [each for each in later if each[1] not in names(user)]
    log = (user.one.directory / "bench.log").read_text()[-5000:]
    assert not wrong, f"no connection fails, none goes to the victim: {wrong}\n{log}"


def test_a_spare_serves_once_it_has_replaced_a_member(user):
    spec = {
        "targetRef": {"apiVersion": "kubevirt.io/v1", "kind": SET_KIND, "name": SET},
        "replicas": 1,
    }
    pool = {"apiVersion": "corral.dev/v1alpha1", "kind": "VirtualMachineWarmPool"}
    user.kubectl(
        "create", "-f", "-", input=json.dumps({**pool, "metadata": {"name": "spare"}, "spec": spec})
    )
    user.kubectl("wait", "vmwp/spare", "--for", "condition=Ready", "--timeout", f"{PATIENCE}s")
    (spare,) = user.items("vmi", "-l", "corral.dev/warm-pool=spare")
    address, before = spare["status"]["interfaces"][0]["ipAddress"], endpoints(user, "web")
    assert len(before) == 3
    assert address not in before
    members = user.items("vmi", "-l", "myvmi=myvmi")
    gone = members[0]["status"]["interfaces"][0]["ipAddress"]
    user.kubectl("delete", "vmi", members[0]["metadata"]["name"], "--wait=false")
    replaced = before - {gone} | {address}
    until("the spare serves in its place", lambda: endpoints(user, "web") == replaced)
    adopted = user.get("vmi", spare["metadata"]["name"])
    assert adopted["metadata"]["uid"] == spare["metadata"]["uid"]
    assert adopted["metadata"]["ownerReferences"][0]["kind"] == SET_KIND
    user.kubectl("delete", "vmwp", "spare")
    until("no spare is left", lambda: len(user.items("vmi")) == 3)


@needs_root
def test_connections_outlive_the_manager(user):
    address, directory = cluster_ip(user, "web"), user.one.directory
    with socket.create_connection((address, 80), timeout=PATIENCE) as connection:
        connection.sendall(b"GET / HTTP/1.0\r\n")
        user.kill_manager()
        assert ask(address), "Services lead on without a manager"
        with outside(*RANGES, directory=directory) as again:
            until("it is back", lambda: len(endpoints(again, "web")) == 3)
            connection.sendall(b"\r\n")
            answer = b"".join(iter(lambda: connection.recv(4096), b""))
            assert answer.split()[-1].decode() in names(again)
            assert of_directory(directory)
    nothing_is_left(directory)
    assert PODS not in said_by("ip", "route")
    assert "corral" not in said_by("nft", "list", "ruleset")


def nothing_is_left(directory: Path) -> None:
    until(f"no process has a file of {directory} open", lambda: not of_directory(directory))


def answers(port: int) -> bool:
    try:
        return bool(ask("127.0.0.1", port))
    except OSError:
        return False
