"""Forks of one checkpoint: how soon each answers by its own name, and the memory that it takes.

Beside them is what a person would type who knows QEMU, with the same guest: the memory of a stopped
guest in a file, which other QEMUs map privately.  Its forks are named by their serial console.
"""

import contextlib
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec
from tests.cluster import until

from bench.api import VMIS
from bench.boot import create_overlay, demo_disk, has_agent, machines, pss, watch
from bench.claim import Answers, answers_of, with_network
from bench.cluster import Cluster, cluster, free_port, vmi
from bench.figure import Figure
from bench.raw_migration import RawGuest
from corral.api.kinds.corral.checkpoint import VirtualMachineCheckpoint
from corral.api.kinds.corral.fork import fork_of

CHECKPOINTS = "/apis/corral.dev/v1alpha1/namespaces/default/virtualmachinecheckpoints"
PODS = "/api/v1/namespaces/default/pods"
RANGES = ("--pod-cidr", "10.243.0.0/16", "--service-cidr", "10.244.0.0/16")
OVERCOMMIT = ("--cpu-allocation-ratio", "250")  # sixty machines on two processors
ALONE, AT_ONCE, FEW, COLD = 5, 50, 10, 3
SETTLE_SECONDS = 3.0
"""After a start, until memory is measured."""
PATIENCE_SECONDS = 180.0
MEMORY = "128Mi"


class Forked(NamedTuple):
    """Seconds from the creation of a fork until its guest answers, and until by its own name."""

    first: float
    named: float


def measure() -> list[Figure]:
    with cluster(*OVERCOMMIT, *RANGES) as one:
        disk = demo_disk(one.directory)
        cold = booted(one)
        made, seconds = checkpoint(one)
        alone, raw = [], []
        with raw_source(disk) as source:
            for number in range(ALONE + 1):  # in turns: what else the host does differs
                theirs = source.fork(number)
                [ours] = forked(one, made, f"alone-{number}", 1)
                if number:  # the first one fills the caches of the host
                    alone.append(ours)
                    raw.append(theirs)
        few = measured_pss(one, made, FEW - ALONE - 1, "few")
        begun = time.perf_counter()
        many = forked(one, made, "many", AT_ONCE)
        whole = time.perf_counter() - begun
        time.sleep(SETTLE_SECONDS)
        sixty = forks_pss(one)
    return [
        Figure("a checkpoint of 128 MiB", [seconds], "s", "≤ 1 s"),
        Figure("fork → answers", [each.first for each in alone], "s", "≤ 0.12 s"),
        Figure("fork → answers by its name", [each.named for each in alone], "s", "≤ 0.25 s"),
        Figure("raw QEMU: → answers", [each.first for each in raw], "s"),
        Figure("raw QEMU: → by its name", [each.named for each in raw], "s"),
        Figure("ratio to raw, by its name", ratios(alone, raw), ""),
        Figure(f"{AT_ONCE} at once: each", [each.named for each in many], "s"),
        Figure(f"{AT_ONCE} at once: all", [whole], "s", "≤ 10 s"),
        Figure("rate", [AT_ONCE / whole], "/s", "≥ 6 /s"),
        Figure("PSS of a cold boot", cold, "MiB"),
        Figure(f"PSS of a fork, {FEW} of them", few, "MiB"),
        Figure(f"PSS of a fork, {FEW + AT_ONCE} of them", sixty, "MiB", "≤ 45 MiB"),
    ]


def ratios(ours: list[Forked], raw: list[Forked]) -> list[float]:
    return [mine.named / theirs.named for mine, theirs in zip(ours, raw, strict=True)]


# -- corral --------------------------------------------------------------------------------------


def booted(one: Cluster) -> list[float]:
    """Boot machines, of which one stays as the source; return what they take, in MiB of PSS."""
    names = ["source", *(f"cold-{number}" for number in range(1, COLD))]
    for name in names:
        one.call("POST", VMIS, with_network(vmi(name, memory=MEMORY)))
    until("they run", lambda: all(map(has_agent, one.call("GET", VMIS)["items"])))
    time.sleep(SETTLE_SECONDS)
    taken = [pss(pid) for pid in machines(one.directory)]
    for name in names[1:]:
        one.call("DELETE", f"{VMIS}/{name}")
    until("the others are gone", lambda: len(machines(one.directory)) == 1)
    return taken


def checkpoint(one: Cluster) -> tuple[VirtualMachineCheckpoint, float]:
    """Make a checkpoint of the source; return it, and for how many seconds it was made."""
    body = {"metadata": {"name": "base"}, "spec": {"source": {"name": "source"}}}
    begun = time.perf_counter()
    one.call("POST", CHECKPOINTS, body)
    while True:
        document = one.call("GET", f"{CHECKPOINTS}/base")
        made = msgspec.convert(document, VirtualMachineCheckpoint, strict=False)
        if made.is_final:
            assert made.has("Ready"), document["status"]
            return made, time.perf_counter() - begun


def forked(one: Cluster, made: VirtualMachineCheckpoint, prefix: str, count: int) -> list[Forked]:
    """Create forks at once; return what became of each."""
    pause = 0.002 if count == 1 else 0.05  # between two requests to one guest
    answers: dict[str, Answers] = {}
    waiters: list[threading.Thread] = []
    over = threading.Event()

    def ask(name: str, address: str) -> None:
        answers[name] = answers_of(address, name, pause=pause)
        if len(answers) == count:
            over.set()

    asked = set()

    def changed(pod: dict) -> None:
        name, address = pod["metadata"]["ownerReferences"][0]["name"], pod["status"].get("podIP")
        if name.startswith(f"{prefix}-") and address and name not in asked:
            asked.add(name)
            waiters.append(threading.Thread(target=ask, args=(name, address), daemon=True))
            waiters[-1].start()

    query = "?watch=true&timeoutSeconds=600"
    threading.Thread(target=watch, args=(one, PODS + query, changed), daemon=True).start()
    source = one.call("GET", f"{VMIS}/source")
    time.sleep(0.3)
    begun = time.perf_counter()
    for number in range(count):
        document = fork_of(source, made)
        metadata = document["metadata"]
        metadata["name"] = f"{prefix}-{number}"
        one.call("POST", VMIS, document)
    assert over.wait(PATIENCE_SECONDS), f"{len(answers)} of {count} answer"
    return [Forked(each.first - begun, each.named - begun) for each in answers.values()]


def measured_pss(
    one: Cluster, made: VirtualMachineCheckpoint, count: int, prefix: str
) -> list[float]:
    """Start more forks; return what each of all takes, in MiB of PSS."""
    forked(one, made, prefix, count)
    time.sleep(SETTLE_SECONDS)
    return forks_pss(one)


def forks_pss(one: Cluster) -> list[float]:
    return [pss(pid) for pid in machines(one.directory) if is_fork(pid)]


def is_fork(pid: int) -> bool:
    return b"memory-backend-file" in Path(f"/proc/{pid}/cmdline").read_bytes()


# -- QEMU by hand --------------------------------------------------------------------------------


class RawSource:
    """A guest that stands still in files, and the QEMUs that go on from there."""

    def __init__(self, directory: Path, overlay: Path) -> None:
        self._directory, self._overlay = directory, overlay
        self._memory, self._devices = directory / "memory", directory / "devices"

    def make(self) -> None:
        """Boot a guest, log in to it, and write its files."""
        guest = RawGuest(self._overlay, "131072K", *_pages(self._memory, shared=True))
        try:
            guest.boot("true")
            time.sleep(SETTLE_SECONDS)
            guest.monitor.execute("stop")
            _ignore_shared(guest)
            guest.monitor.execute("migrate", uri=f"exec:cat > {self._devices}")
            guest.monitor.wait("MIGRATION", status="completed")
        finally:
            guest.end()

    def fork(self, number: int) -> Forked:
        """Start a QEMU that goes on, and end it."""
        name, port = f"raw-{number}", free_port()
        begun = time.perf_counter()
        overlay = create_overlay(self._directory / f"{name}.qcow2", self._overlay)
        pages = _pages(self._memory, shared=False)
        guest = RawGuest(overlay, "131072K", *pages, "-S", "-incoming", "defer")
        try:
            _ignore_shared(guest)
            guest.monitor.execute("migrate-incoming", uri=f"exec:cat {self._devices}")
            guest.monitor.wait("MIGRATION", status="completed")
            forward = f"hostfwd_add tcp:127.0.0.1:{port}-:80"
            guest.monitor.execute("human-monitor-command", **{"command-line": forward})
            guest.monitor.execute("cont")
            guest.type(f". /usr/lib/demo/name; name_host {name}")
            answers = answers_of("127.0.0.1", name, port=port)
        finally:
            guest.end()
        return Forked(answers.first - begun, answers.named - begun)


@contextlib.contextmanager
def raw_source(disk: Path) -> Iterator[RawSource]:
    with tempfile.TemporaryDirectory(prefix="corral-bench.") as name:
        directory = Path(name)
        source = RawSource(directory, create_overlay(directory / "source.qcow2", disk))
        source.make()
        yield source


def _pages(memory: Path, *, shared: bool) -> tuple[str, ...]:
    share = "on" if shared else "off"
    backend = f"memory-backend-file,id=pages,mem-path={memory},size=128M,share={share}"
    return ("-object", backend, "-machine", "memory-backend=pages")


def _ignore_shared(guest: RawGuest) -> None:
    states = {"events": True, "x-ignore-shared": True}
    listed = [{"capability": name, "state": state} for name, state in states.items()]
    guest.monitor.execute("migrate-set-capabilities", capabilities=listed)
