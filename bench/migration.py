"""Live migration between two nodes of one host, beside two raw QEMUs with the same guest.

Both sides migrate in turns: what else the host does differs from one minute to the next.  A guest
that dirties its memory rewrites 8 MiB ten times a second.  The gaps are those that a client outside
of the guest sees, who sends something every 10 ms: between two answers to pings, and between two
echoes of what it sends by a TCP connection.
"""

import contextlib
import itertools
import json
import os
import select
import socket
import struct
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.cluster import Outside, until
from tests.exposition import Scrape

from bench.api import VMIS
from bench.boot import REFERENCE, cpu, demo_disk, has_agent, watch
from bench.cluster import Cluster, cluster, vmi
from bench.figure import Figure
from bench.raw_migration import RawMove, booted, move
from corral.api.kinds.storage.common import SHARED_CLASS

MIGRATIONS = "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstancemigrations"
RANGES = ("--pod-cidr", "10.231.0.0/16", "--service-cidr", "10.232.0.0/16")
ROUNDS = int(os.environ.get("CORRAL_BENCH_ROUNDS", "7"))
DRAINED = 10
DIRTYING = (
    "cd /run; dd if=/dev/urandom of=noise bs=1M count=8; "
    "while :; do dd if=noise of=dirty bs=1M conv=notrunc; usleep 100000; done"
)
ECHO_PORT = 5000
ECHO_SECONDS = 30.0
ECHO = f"while :; do nc -l -p {ECHO_PORT} -e cat; done"
SHARED = "demo-disk"
PERIOD_SECONDS = 0.01
ECHO_REQUEST = struct.pack(">BBHHH", 8, 0, 0xF7FF, 0, 0)
"""A ping (RFC 792): its type, its checksum, and nothing else."""
SETTLE_SECONDS = 2.0
"""After a boot, and between two migrations."""
OVERHEAD_MS = 150


class Case(NamedTuple):
    """A guest to migrate; ``memory`` as its VMI and as QEMU have it."""

    memory: str
    raw_memory: str
    dirties: bool = False
    copied: bool = True

    @property
    def name(self) -> str:
        load = "dirtying" if self.dirties else "idle"
        return f"{self.memory} {load}, disk {'copied' if self.copied else 'shared'}"


CASES = (
    Case("64M", "62500K"),
    Case("128Mi", "131072K"),
    Case("128Mi", "131072K", copied=False),
    Case("128Mi", "131072K", dirties=True),
    Case("1Gi", "1048576K"),
    Case("1Gi", "1048576K", dirties=True),
)
GOAL = Case("128Mi", "131072K").name
"""The case that the goals are of."""


class Sample(NamedTuple):
    """One migration by corral: seconds, and the CPU seconds of the manager."""

    total: float
    downtime: float
    ping_gap: float
    tcp_gap: float
    cpu: float


def measure() -> list[Figure]:
    figures = []
    with tempfile.TemporaryDirectory(prefix="corral-bench.") as shared:
        ratio = ("--cpu-allocation-ratio", "40")  # ten machines on half of two CPUs
        options = ("--nodes", "2", "--shared-storage", shared, *ratio, *RANGES)
        with cluster(*options) as one:
            disk = demo_disk(one.directory)
            for case in CASES:
                figures += of_case(one, disk, case)
            figures.append(drain(one))
    return figures


def of_case(one: Cluster, disk: Path, case: Case) -> list[Figure]:
    ours, raw = [], []
    command = DIRTYING if case.dirties else ""
    with contextlib.ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="corral-bench.")))
        guests = stack.enter_context(booted(disk, directory, case.raw_memory, command))
        machine = stack.enter_context(running(one, case))
        for number in range(ROUNDS + 1):
            time.sleep(SETTLE_SECONDS)
            by_hand = move(guests, disk, copied=case.copied)
            time.sleep(SETTLE_SECONDS)
            sample = machine.move(f"move-{number}")
            if number:  # the first round fills the caches of the host
                ours.append(sample)
                raw.append(by_hand)
    return figures_of(case, ours, raw)


def figures_of(case: Case, ours: list[Sample], raw: list[RawMove]) -> list[Figure]:
    pairs = list(zip(ours, raw, strict=True))
    over = [(mine.total - theirs.whole) * 1e3 for mine, theirs in pairs]

    def goal(text: str) -> str:
        return text if case.name == GOAL else ""

    def figure(what: str, seconds: list[float], limit: str = "") -> Figure:
        samples = [1e3 * each for each in seconds]
        return Figure(f"{case.name}: {what}", samples, "ms", goal(limit))

    return [
        figure("created → Succeeded", [one.total for one in ours], "≤ 500 ms"),
        figure("raw, QEMU's start included", [one.whole for one in raw]),
        figure("raw, the transfer alone", [one.transfer for one in raw]),
        Figure(f"{case.name}: more than raw", over, "ms", goal(f"≤ {OVERHEAD_MS} ms")),
        Figure(f"{case.name}: ratio", [mine.total / theirs.whole for mine, theirs in pairs]),
        figure("the guest stands still", [one.downtime for one in ours], "≤ 20 ms"),
        figure("raw, the guest stands still", [one.stopped for one in raw]),
        figure("raw, QEMU's downtime", [one.downtime for one in raw]),
        figure("gap between pings", [one.ping_gap for one in ours], "≤ 50 ms"),
        figure("gap of the TCP stream", [one.tcp_gap for one in ours], "≤ 50 ms"),
        figure("CPU of the manager", [one.cpu for one in ours]),
    ]


class Machine:
    """A running machine of corral."""

    def __init__(self, user: Outside, name: str) -> None:
        self._user, self._one, self._name = user, user.one, name
        self._address = user.get("vmi", name)["status"]["interfaces"][0]["ipAddress"]

    def run(self, command: str) -> None:
        """Run a command in the background of the guest."""
        pods = (pod["metadata"] for pod in self._user.items("pod"))
        [pod] = [one["name"] for one in pods if one["ownerReferences"][0]["name"] == self._name]
        background = f"setsid sh -c '{command}' > /dev/null 2>&1 < /dev/null &"
        self._user.kubectl("exec", pod, "--", "sh", "-c", background)

    def move(self, name: str) -> Sample:
        """Migrate it once."""
        phases: dict[str, float] = {}
        over = threading.Event()

        def changed(migration: dict) -> None:
            phase = migration.get("status", {}).get("phase")
            if migration["metadata"]["name"] == name and phase not in phases:
                phases[phase] = time.perf_counter()
                if phase in {"Succeeded", "Failed"}:
                    over.set()

        query = f"?watch=true&fieldSelector=metadata.name%3D{name}&timeoutSeconds=60"
        arguments = (self._one, MIGRATIONS + query, changed)
        threading.Thread(target=watch, args=arguments, daemon=True).start()
        with (
            answers(pinged(self._address), ECHO_REQUEST) as pings,
            answers(echoed(self._address), b".") as echoes,
        ):
            time.sleep(0.5)
            used, begun = cpu(self._one.process.pid), time.perf_counter()
            self._one.call("POST", MIGRATIONS, migration_of(self._name, name))
            assert over.wait(60), phases
            time.sleep(0.5)  # what is tidied up after it counts as well
            used = cpu(self._one.process.pid) - used
        assert "Succeeded" in phases, phases
        return Sample(
            total=phases["Succeeded"] - begun,
            downtime=self._downtime(),
            ping_gap=longest(pings, begun),
            tcp_gap=longest(echoes, begun),
            cpu=used,
        )

    def _downtime(self) -> float:
        said = scrape(self._one)
        return said.value("kubevirt_vmi_migration_last_downtime_seconds", name=self._name)


def longest(moments: list[float], since: float) -> float:
    """Return the longest time between two moments, from the last one before ``since``."""
    first = max(0, sum(each < since for each in moments) - 1)
    later = moments[first:]
    return max(second - one for one, second in itertools.pairwise(later))


def scrape(one: Cluster) -> Scrape:
    with contextlib.closing(one.connect()) as connection:
        connection.request(
            "GET", "/metrics", headers={"Authorization": one.headers["Authorization"]}
        )
        return Scrape(connection.getresponse().read().decode())


def migration_of(vmi_name: str, name: str) -> dict:
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstanceMigration",
        "metadata": {"name": name},
        "spec": {"vmiName": vmi_name},
    }


@contextlib.contextmanager
def running(one: Cluster, case: Case) -> Iterator[Machine]:
    """A machine whose guest has booted, and dirties its memory if it should."""
    name = f"bench-{time.monotonic_ns()}"
    user = Outside(one)
    if not case.copied:
        import_disk(user)
    one.call("POST", VMIS, movable(name, case))
    try:
        until("the guest's agent answers", lambda: has_agent(user.get("vmi", name)))
        machine = Machine(user, name)
        if case.dirties:
            machine.run(DIRTYING)
        machine.run(ECHO)
        yield machine
    finally:
        one.call("DELETE", f"{VMIS}/{name}")
        until("it is gone", lambda: not one.call("GET", VMIS)["items"])


def import_disk(user: Outside) -> None:
    """Make the demo guest's disk a volume of the directory that hosts share."""
    document = {
        "apiVersion": "cdi.kubevirt.io/v1beta1",
        "kind": "DataVolume",
        "metadata": {"name": SHARED},
        "spec": {
            "source": {"registry": {"url": f"docker://{REFERENCE}"}},
            "storage": {
                "storageClassName": SHARED_CLASS,
                "accessModes": ["ReadWriteMany"],
                "resources": {"requests": {"storage": "256Mi"}},
            },
        },
    }
    user.kubectl("create", "-f", "-", input=json.dumps(document))
    until("it is filled", lambda: user.get("dv", SHARED)["status"].get("phase") == "Succeeded")


def movable(name: str, case: Case) -> dict:
    """A machine with an address of its own, which it keeps when it moves."""
    document = vmi(name, memory=case.memory)
    spec = document["spec"]
    spec["evictionStrategy"] = "LiveMigrate"
    spec["networks"] = [{"name": "default", "pod": {}}]
    devices = spec["domain"]["devices"]
    devices |= {"interfaces": [{"name": "default", "masquerade": {}}], "rng": {}}
    if not case.copied:
        claim = {"persistentVolumeClaim": {"claimName": SHARED}}
        spec["volumes"] = [{"name": spec["volumes"][0]["name"], **claim}]
    return document


def pinged(address: str) -> socket.socket:
    """Return a socket that sends pings to an address, and receives the answers."""
    connection = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
    connection.connect((address, 0))
    return connection


def echoed(address: str) -> socket.socket:
    """Return a connection to the guest that answers what it is sent.

    It sends at once, as ssh does: what waits for an answer to a lost packet waits for 200 ms.
    """
    connection = connected(address)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def connected(address: str) -> socket.socket:
    """Connect to the guest's echo, which listens again a moment after the last connection ended."""
    deadline = time.monotonic() + ECHO_SECONDS
    while True:
        try:
            return socket.create_connection((address, ECHO_PORT), timeout=5)
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


@contextlib.contextmanager
def answers(connection: socket.socket, message: bytes) -> Iterator[list[float]]:
    """Send a message every now and then in a thread; yield the moments at which answers come."""
    moments: list[float] = []
    over = threading.Event()

    def collect() -> None:
        due = time.perf_counter()
        while not over.is_set():
            left = due - time.perf_counter()
            if left <= 0:
                due += PERIOD_SECONDS
                with contextlib.suppress(OSError):  # no route for a moment
                    connection.send(message)
            elif select.select([connection], [], [], left)[0] and connection.recv(1 << 16):
                moments.append(time.perf_counter())

    thread = threading.Thread(target=collect)
    thread.start()
    try:
        yield moments
    finally:
        over.set()
        thread.join()
        connection.close()


def drain(one: Cluster) -> Figure:
    """Seconds that ``kubectl drain`` takes for a node with ten machines."""
    user = Outside(one)
    first, second = (node["metadata"]["name"] for node in user.items("nodes"))
    user.kubectl("cordon", second)
    names = [f"drained-{number}" for number in range(DRAINED)]
    for name in names:
        one.call("POST", VMIS, movable(name, CASES[0]))
    until("all run", lambda: all(map(has_agent, user.items("vmi"))))
    user.kubectl("uncordon", second)
    begun = time.perf_counter()
    user.kubectl("drain", first, "--ignore-daemonsets", "--delete-emptydir-data")
    taken = time.perf_counter() - begun
    assert {each["status"]["nodeName"] for each in user.items("vmi")} == {second}
    user.kubectl("uncordon", first)
    for name in names:
        one.call("DELETE", f"{VMIS}/{name}")
    return Figure(f"kubectl drain of {DRAINED} machines", [taken], "s", "≤ 10 s")
