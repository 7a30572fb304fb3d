"""Guests that migrate between two hosts again and again, while parts of that are killed.

``CORRAL_SOAK_MOVES`` says how many migrations there are, ``CORRAL_SOAK_SEED`` which ones, and which
of them are disturbed; each failure names the seed, the round and its fault.
"""

import hashlib
import json
import logging
import os
import random
import signal
import socket
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tests.cluster import until
from tests.e2e.hosts.test_live_migration import local_machine, neighbour
from tests.e2e.test_live_migration import PORT, REFERENCE, Stream
from tests.hosts import Host, Site, site

from corral.node.fencing.watchdog import process_of
from corral.node.host import process
from corral.node.network.antispoof import LINK_PREFIX
from corral.node.network.namespaces import Namespace
from corral.node.state import machine_record as records
from corral.node.state.machine_record import Record, Stage

pytestmark = [pytest.mark.e2e, pytest.mark.periodic, pytest.mark.timeout(7200)]

LOG = logging.getLogger(__name__)
MOVES = int(os.environ.get("CORRAL_SOAK_MOVES", "12"))
SEED = int(os.environ.get("CORRAL_SOAK_SEED", "0"))
GUESTS = 3
FAULTS = {"target's QEMU": 5, "source's QEMU": 3, "host2's agent": 3, "manager": 2, "cable": 3}
"""How often each fault comes in 16 disturbed rounds."""
ONLY = os.environ.get("CORRAL_SOAK_FAULT", "")
"""The one fault that there is, if not all of them."""
DISTURBED = float(os.environ.get("CORRAL_SOAK_DISTURBED", "0.5"))
"""The part of the rounds with a fault."""
PATIENCE = 120.0
BLOCK, BLOCKS = 4096, 64
SPARE_DESCRIPTORS = 30
"""Open files that a manager or agent may have more than after its start: clients and streams."""

COUNTER = f"(i=0; while :; do echo $i; i=$((i+1)); usleep 100000; done) | nc -l -p {PORT}"
WRITER = (
    "i=0; while [ ! -e /run/halt ]; do"
    f' printf "%0{BLOCK}d" $i | dd of=/dev/vdb bs={BLOCK} seek=$((i % {BLOCKS}))'
    " conv=notrunc,fsync 2> /dev/null && echo $i > /run/written;"
    " i=$((i+1)); sleep 1; done; touch /run/halted"
)
"""Writes numbers to the disk, one to a block, and notes what is on the disk in memory."""


def expected_disk(last: int) -> bytes:
    """Return the blocks after numbers to ``last`` were written."""
    blocks = [bytes(BLOCK)] * BLOCKS
    for number in range(max(0, last - BLOCKS + 1), last + 1):
        blocks[number % BLOCKS] = b"%0*d" % (BLOCK, number)
    return b"".join(blocks)


def machines_of(host: Host) -> Iterator[tuple[Path, Record]]:
    """Return the machines of a host that have not ended."""
    for directory in (host.layout.nodes / host.name / records.MACHINES).iterdir():
        record = records.read(directory) if directory.is_dir() else None
        if record is not None and record.stage is not Stage.ENDED:
            yield directory, record


def qemus_of(uid: str) -> list[int]:
    """Return the processes of a VMI's QEMUs, on all hosts."""
    found = []
    for each in Path("/proc").iterdir():
        if each.name.isdigit():
            try:
                words = (each / "cmdline").read_bytes()
            except OSError:
                continue
            if words.startswith(b"qemu") and uid.encode() in words.split(b"-uuid")[0]:
                found.append(int(each.name))
    return found


@dataclass
class Guest:
    """A guest with a counter that is read, and a writer."""

    name: str
    uid: str
    stream: Stream
    booted: str
    moves: int = 0
    seen: int = 0
    """Values of the counter that came before the latest migration."""


@dataclass
class Tally:
    """Numbers of what has happened."""

    succeeded: int = 0
    failed: int = 0
    lost: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    killed: Counter[str] = field(default_factory=Counter)
    """QEMUs, by their side of a migration and the stage of their machine; managers and agents."""
    memory_mib: dict[str, float] = field(default_factory=dict)
    gaps: dict[str, list[float]] = field(default_factory=lambda: {"calm": [], "disturbed": []})
    """Seconds for which a guest's counter was not heard of, of each migration that ended well."""

    def __str__(self) -> str:
        counts = f"{self.succeeded} succeeded, {self.failed} failed, {self.lost} lost"
        spread = {name: quantiles(gaps) for name, gaps in self.gaps.items()}
        kills = f"faults {dict(self.faults)}, killed {dict(self.killed)}"
        return f"{counts}, {kills}, MiB {self.memory_mib}, gaps of connections {spread}"


def quantiles(values: list[float]) -> dict[str, float]:
    """Return the least, the middle, the 95th of 100 and the greatest of some values."""
    ordered = sorted(values)
    places = {"min": 0, "p50": 0.5, "p95": 0.95, "max": 1} if ordered else {}
    return {name: round(ordered[int(p * (len(ordered) - 1))], 2) for name, p in places.items()}


class Soak:
    """Guests on two hosts, and rounds of migrations."""

    def __init__(self, made: Site, pod, dice: random.Random) -> None:
        self.made, self.pod, self.dice = made, pod, dice
        self.api = made.api
        self.guests: dict[str, Guest] = {}
        self.tally = Tally()
        self.round = ""
        self._descriptors: dict[int, int] = {}
        self._faults: list[str] = []

    # -- Guests

    def status(self, name: str) -> dict:
        return self.api.get("vmi", name).get("status", {})

    def run(self, name: str, command: str) -> str:
        """Run a command in a guest, by the pod that is on its node."""
        node = self.status(name)["nodeName"]
        [pod] = [
            each["metadata"]["name"]
            for each in self.api.items("pod", "-l", f"vm.kubevirt.io/name={name}")
            if (each["spec"]["nodeName"], each["status"]["phase"]) == (node, "Running")
        ]
        return self.made.first.kubectl("exec", pod, "--", "sh", "-c", command)

    def boot(self, name: str) -> None:
        document = local_machine()
        document["metadata"]["name"] = name
        self.made.first.kubectl("create", "-f", "-", input=json.dumps(document))
        until(f"{name} is ready", lambda: self.is_ready(name))
        booted = self.run(name, "cat /proc/sys/kernel/random/boot_id")
        for each in (COUNTER, WRITER):
            self.run(name, f"setsid sh -c '{each}' > /dev/null 2>&1 < /dev/null &")
        address = self.status(name)["interfaces"][0]["ipAddress"]
        stream = Stream(address, lambda where: self.pod.connect(where, 60))
        uid = self.api.get("vmi", name)["metadata"]["uid"]
        self.guests[name] = Guest(name, uid, stream, booted)

    def is_ready(self, name: str) -> bool:
        conditions = self.status(name).get("conditions", ())
        true = {each["type"] for each in conditions if each["status"] == "True"}
        return {"Ready", "AgentConnected"} <= true

    # -- Rounds

    def move(self, number: int) -> int:
        """Migrate some guests side by side, maybe disturbed; return how many."""
        names = self.dice.sample(sorted(self.guests), self.dice.randint(1, len(self.guests)))
        fault = ""
        if self.dice.random() < DISTURBED:
            fault = ONLY or self.next_fault()
        delay = self.dice.uniform(0, 2)
        self.round = f"seed {SEED}, round {number}: {' '.join(names)}, {fault or 'no fault'}"
        self.round += f" after {delay:.2f} s"
        before = {name: self.status(name)["nodeName"] for name in names}
        for name in names:
            self.guests[name].seen = len(self.guests[name].stream.values)
            self.begin(name, f"{name}-{number}")
        may_be_lost = set()
        if fault:
            self.tally.faults[fault] += 1
            may_be_lost = self.disturb(fault, names[0], before[names[0]], delay)
        phases = {name: self.ended(f"{name}-{number}") for name in names}
        for name in names:
            self.check(name, before[name], phases[name], lost=name in may_be_lost)
            if phases[name] == "Succeeded" and self.guests[name].moves:
                gap = self.guests[name].stream.longest_gap(self.guests[name].seen)
                self.tally.gaps["disturbed" if fault else "calm"].append(gap)
        gone = ("--ignore-not-found", *(f"{name}-{number}" for name in names))
        self.made.first.kubectl("delete", "vmim", *gone)  # a lost guest's went with its VMI
        LOG.info("%s: %s", self.round, phases)
        return len(names)

    def next_fault(self) -> str:
        """Return the next of the shuffled faults, so that none is left out by chance."""
        if not self._faults:
            self._faults = list(Counter(FAULTS).elements())
            self.dice.shuffle(self._faults)
        return self._faults.pop()

    def begin(self, name: str, migration: str) -> None:
        body = {
            "apiVersion": "kubevirt.io/v1",
            "kind": "VirtualMachineInstanceMigration",
            "metadata": {"name": migration},
            "spec": {"vmiName": name},
        }
        path = "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstancemigrations"
        self.api.one.call("POST", path, body)

    def ended(self, migration: str) -> str:
        """Return the last phase of a migration."""
        phase = ""

        def is_over() -> bool:
            nonlocal phase
            phase = self.api.get("vmim", migration).get("status", {}).get("phase", "")
            return phase in {"Succeeded", "Failed"}

        self.until("the migration is over", is_over)
        return phase

    def until(self, what: str, holds) -> None:
        until(f"{self.round}: {what}", holds, PATIENCE)

    # -- Faults

    def disturb(self, fault: str, name: str, source: str, delay: float) -> set[str]:
        """Do what a fault says, some time after a target's QEMU was started.

        Return the guests that may be lost by it.
        """
        lost = set()
        uid = self.guests[name].uid
        with suppress(AssertionError):  # it was quicker, or its target waits for others
            until("the target has a QEMU", lambda: len(qemus_of(uid)) > 1, 5)
        time.sleep(delay)
        if fault.endswith("QEMU"):
            lost = self.kill_qemu(name, source, target=fault.startswith("target"))
        elif fault == "host2's agent":
            self.made.hosts[1].kill()
            self.tally.killed["agent"] += 1
            self.made.join(self.made.hosts[1])
        elif fault == "manager":
            self.made.first.kill()
            self.tally.killed["manager"] += 1
            self.made.up()
        else:
            self.made.hosts[1].link("down")
            time.sleep(4 * delay)
            self.made.hosts[1].link("up")
        until(f"{self.round}: both nodes are ready", lambda: self.made.ready(*self.made.hosts))
        return lost

    def kill_qemu(self, name: str, source: str, *, target: bool) -> set[str]:
        """Kill the QEMU of a guest on one side, if it is there.

        Return the guest if it may be lost by that.
        """
        uid, side = self.guests[name].uid, "target" if target else "source"
        # The source's QEMU may go once the target has the guest, as its record says; the target's
        # may go while the source has it.
        was_handed_over = self.is_handed_over(uid, source)
        killed = False
        for host in self.made.hosts:
            if (host.name == source) is target:
                continue
            for directory, record in machines_of(host):
                if record.uid == uid and (pid := process_of(directory)) is not None:
                    os.kill(pid, signal.SIGKILL)
                    killed = True
                    self.tally.killed[f"{side} {record.stage.value}"] += 1
                    LOG.info("%s: killed %d on %s (%s)", self.round, pid, host.name, record.stage)
        needed = self.is_handed_over(uid, source) if target else not was_handed_over
        return {name} if killed and needed else set()

    def is_handed_over(self, uid: str, source: str) -> bool:
        """Return whether the source of a migration has no machine that may run the guest."""
        [host] = [each for each in self.made.hosts if each.name == source]
        return not any(
            record.uid == uid and record.stage in {Stage.STARTED, Stage.SENDING}
            for _, record in machines_of(host)
        )

    # -- What has to hold

    def check(self, name: str, source: str, phase: str, *, lost: bool) -> None:
        """Check one guest after its migration."""
        guest = self.guests[name]
        seen = len(guest.stream.values)
        if lost:
            self.until(
                f"{name} has ended, or its connection goes on",
                lambda: self.has_ended(name) or len(guest.stream.values) > seen + 2,
            )
        if self.has_ended(name):
            assert lost, f"{self.round}: {name} is lost: {self.status(name)}"
            self.replace(name)
            return
        node = self.status(name)["nodeName"]
        if phase == "Succeeded":
            self.tally.succeeded += 1
            guest.moves += 1
            assert node != source, f"{self.round}: {name} is where it was"
        else:
            self.tally.failed += 1
            assert node == source, f"{self.round}: {name} is not where it was"
        try:
            self.until(
                f"the connection to {name} goes on",
                lambda: len(guest.stream.values) > seen + 2 or guest.stream.failure is not None,
            )
            self.check_stream(guest)
        except AssertionError:
            self.explain(guest, phase)
            raise
        self.until(f"one QEMU has {name}", lambda: len(qemus_of(guest.uid)) == 1)

    def has_ended(self, name: str) -> bool:
        return self.status(name).get("phase") != "Running"

    def explain(self, guest: Guest, phase: str) -> None:
        """Log what is known of a guest whose connection does not go on."""
        status = self.status(guest.name)
        address = status["interfaces"][0]["ipAddress"]
        LOG.error("%s: %s %s: %s", self.round, guest.name, phase, status["migrationState"])
        for host in self.made.hosts:
            holder = process.find(host.layout.network / "holder")
            for words in (("route", "get", address), ("route",), ("neighbour",), ("-br", "link")):
                command = ["nsenter", "-t", str(holder.pid), "-n", "ip", *words]
                done = subprocess.run(command, capture_output=True, text=True, check=False)
                LOG.error("%s: %s\n%s", host.name, " ".join(words), done.stdout + done.stderr)
        for pid in qemus_of(guest.uid):
            LOG.error("QEMU %d: %s", pid, Path(f"/proc/{pid}/stat").read_text())
        command = "cat /proc/uptime; sleep 1; cat /proc/uptime; ps; netstat -tn"
        LOG.error("in the guest: %s", self.run(guest.name, command))

    def check_stream(self, guest: Guest) -> None:
        stream = guest.stream
        assert stream.failure is None, f"{self.round}: {guest.name}: {stream.failure!r}"
        assert stream.values == list(range(len(stream.values))), f"{self.round}: {guest.name}"

    def replace(self, name: str) -> None:
        """Boot a guest anew whose QEMU was killed."""
        guest = self.guests.pop(name)
        self.tally.lost += 1
        self.until(f"no QEMU has {name}", lambda: not qemus_of(guest.uid))
        guest.stream.close()
        values = guest.stream.values
        assert values == list(range(len(values))), f"{self.round}: {name}"
        self.made.first.kubectl("delete", "vmi", name)
        self.boot(name)

    def check_disk(self, guest: Guest) -> None:
        """Check the disk of a guest, all of whose writes came back as written."""
        self.run(guest.name, "touch /run/halt")
        self.until(
            f"{guest.name} writes no more",
            lambda: "yes" in self.run(guest.name, "[ -e /run/halted ] && echo yes || echo no"),
        )
        last = int(self.run(guest.name, "cat /run/written"))
        read = f"dd if=/dev/vdb bs={BLOCK} count={BLOCKS} iflag=direct 2> /dev/null | sha256sum"
        digest = self.run(guest.name, read).split()[0]
        assert digest == hashlib.sha256(expected_disk(last)).hexdigest(), guest.name
        assert self.run(guest.name, "cat /proc/sys/kernel/random/boot_id") == guest.booted

    def check_leaks(self) -> None:
        """Check that the hosts have what their guests need, and no more."""
        for host in self.made.hosts:
            self.check_process(host)
            uids = {each.uid for each in self.guests.values()}
            self.until(
                f"{host.name} has no machine but the guests'",
                lambda host=host: self.machines(host) == self.links(host),
            )
            assert {record.uid for _, record in machines_of(host)} <= uids

    def machines(self, host: Host) -> int:
        return len(list(machines_of(host)))

    def links(self, host: Host) -> int:
        """Return the number of links of machines on a host, without the client's own."""
        holder = process.find(host.layout.network / "holder")
        assert holder is not None
        with Namespace.of_process(holder.pid) as machines:
            names = machines.run(lambda: [name for _, name in socket.if_nameindex()])
        links = [each for each in names if each.startswith(LINK_PREFIX) and len(each) == 15]
        return len(links)

    def check_process(self, host: Host) -> None:
        """Check the open files of a manager or agent; note its memory."""
        proc = Path(f"/proc/{host.pid}")
        count = len(list((proc / "fd").iterdir()))
        first = self._descriptors.setdefault(host.pid, count)
        assert count <= first + SPARE_DESCRIPTORS, f"{self.round}: {host.name}: {count} files"
        pages = int((proc / "statm").read_text().split()[1])
        self.tally.memory_mib[host.name] = pages * os.sysconf("SC_PAGESIZE") / (1 << 20)


@pytest.fixture(scope="module")
def soak(tmp_path_factory, demo_disk):
    if os.geteuid() != 0:
        pytest.skip("network namespaces of hosts need root")
    with ExitStack() as stack:
        made = stack.enter_context(site(tmp_path_factory.mktemp("site"), 2))
        first, second = made.hosts
        first.corral("image", "import", str(demo_disk), REFERENCE)
        made.up()
        made.join(second)
        until("both nodes are ready", lambda: made.ready(*made.hosts))
        configuration = {"migrations": {"bandwidthPerMigration": "24Mi"}}
        patch = json.dumps({"spec": {"configuration": configuration}})
        words = ("kubevirt", "kubevirt", "-n", "kubevirt", "--type", "merge")
        first.kubectl("patch", *words, "-p", patch)
        pod = neighbour(first, made.nodes()["host1"]["spec"]["podCIDR"])
        stack.enter_context(pod.namespace)
        soak = Soak(made, pod, random.Random(SEED))
        for number in range(GUESTS):
            soak.boot(f"vm{number}")
        yield soak
        for guest in soak.guests.values():
            guest.stream.close()


def test_guests_that_migrate_for_long_lose_nothing(soak):
    begun, moves, number = time.monotonic(), 0, 0
    while moves < MOVES:
        number += 1
        moves += soak.move(number)
        if number % 5 == 0:
            soak.check_leaks()
            LOG.info("%d moves in %.0f s: %s", moves, time.monotonic() - begun, soak.tally)
    soak.check_leaks()
    for guest in soak.guests.values():
        soak.check_stream(guest)
        soak.check_disk(guest)
    LOG.info("seed %d: %d moves, %s", SEED, moves, soak.tally)
