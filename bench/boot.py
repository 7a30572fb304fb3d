"""A machine from its creation to its guest's login prompt, beside raw QEMU on the same disk.

Both sides are timed alike, from outside: the moment before the request (or the start of QEMU)
until ``login:`` has been read from the serial console.
"""

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

from bench.api import VMIS
from bench.cluster import Cluster, cluster, vmi
from bench.figure import Figure

PROMPT = b"login:"
REFERENCE = "kubevirt/cirros-container-disk-demo:latest"
STAGES = ("admitted", "scheduled", "running", "userland", "ready")
PODS = "/api/v1/namespaces/default/pods"


def measure() -> list[Figure]:
    figures = []
    with cluster("--cpu-allocation-ratio", "250") as one:  # twenty machines on two processors
        disk = demo_disk(one.directory)
        raw_one, ours_one = [], []
        for _ in range(5):  # in turns: what else the host does differs from one minute to the next
            raw_one.append(raw(disk, 1)[0])
            ours_one.append(created(one, 1)[0])
        figures += [
            Figure(f"created → {stage}", [run[stage] for run in ours_one], "s") for stage in STAGES
        ]
        figures.append(Figure("raw QEMU → userland", raw_one, "s"))
        extra = [
            (ours["userland"] - theirs) * 1e3
            for ours, theirs in zip(ours_one, raw_one, strict=True)
        ]
        figures.append(Figure("corral's share of one start", extra, "ms", "≤ 100 ms"))
        raw_three, ours_three = [], []
        for _ in range(3):
            raw_three.append(max(raw(disk, 3)))
            ours_three.append(max(run["userland"] for run in created(one, 3)))
        ratios = [ours / theirs for ours, theirs in zip(ours_three, raw_three, strict=True)]
        figures.append(Figure("three together, raw", raw_three, "s"))
        figures.append(Figure("three together, corral", ours_three, "s"))
        figures.append(Figure("three together, ratio", ratios, "", "≤ 1.0"))
        raw_twenty = raw(disk, 20, at_once=3)
        twenty = created(one, 20)
        figures.append(Figure("twenty, raw three at a time, last", [max(raw_twenty)], "s"))
        last, first = (pick(run["userland"] for run in twenty) for pick in (max, min))
        figures.append(Figure("twenty, corral, last", [last], "s", "≤ raw"))
        figures.append(Figure("twenty, corral, first", [first], "s", "≤ 1.2 of one alone"))
        figures += idle(one)
    return figures


def demo_disk(directory: Path) -> Path:
    """Import the demo guest, or what $CORRAL_BENCH_DISK names; return the disk in the store."""
    environment = {**os.environ, "CORRAL_DATA_DIR": str(directory)}
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "corral"
    given = os.environ.get("CORRAL_BENCH_DISK")
    what = ["import", given, REFERENCE] if given else ["build-demo", "--cache", str(cache)]
    command = [sys.executable, "-m", "corral", "image", *what]
    subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)
    return next((directory / "images" / "disks").iterdir())


def raw(disk: Path, count: int, *, at_once: int = 0) -> list[float]:
    """Seconds from the first start until each of ``count`` bare QEMUs shows its prompt."""

    async def run() -> list[float]:
        begun = time.perf_counter()
        slots = asyncio.Semaphore(at_once or count)
        done = asyncio.Event()
        seconds: list[float] = []

        async def boot(directory: Path) -> None:
            async with slots:
                process = await asyncio.create_subprocess_exec(
                    *raw_command(disk, directory), stdout=asyncio.subprocess.PIPE
                )
                seen = b""
                assert process.stdout is not None
                while PROMPT not in seen:
                    chunk = await process.stdout.read(4096)
                    assert chunk, "QEMU ended before its guest was up"
                    seen += chunk
                seconds.append(time.perf_counter() - begun)
            # Those that are up stay up, as corral's do, until the last one is.
            await done.wait()
            process.kill()
            await process.communicate()

        with tempfile.TemporaryDirectory(prefix="corral-bench.") as directory:
            async with asyncio.TaskGroup() as group:
                for number in range(count):
                    place = Path(directory) / str(number)
                    place.mkdir()
                    group.create_task(boot(place))
                while len(seconds) < count:
                    await asyncio.sleep(0.05)
                done.set()
        return seconds

    return asyncio.run(asyncio.wait_for(run(), 120))


def raw_command(disk: Path, directory: Path) -> list[str]:
    """The plainest command line with the devices that the guest uses."""
    overlay = create_overlay(directory / "overlay.qcow2", disk)
    drive = f"file={overlay},if=virtio,format=qcow2"
    return plain_command("62500K", "-serial", "stdio", "-drive", drive)


def create_overlay(path: Path, disk: Path) -> Path:
    form = disk.suffix.removeprefix(".")
    command = ["qemu-img", "create", "-q", "-f", "qcow2", "-b", disk, "-F", form, path]
    subprocess.run(command, check=True)
    return path


def plain_command(memory: str, *console_and_disk: str) -> list[str]:
    """The command line of a bare QEMU."""
    return [
        "qemu-system-x86_64", "-nodefaults", "-no-user-config", "-display", "none",
        "-M", "q35,usb=off,smbus=off,sata=off,vmport=off", "-accel", "tcg,tb-size=32",
        "-cpu", "qemu64,+rdrand", "-m", memory,
        *console_and_disk,
        "-nic", "user,model=virtio-net-pci", "-device", "virtio-rng-pci",
    ]  # fmt: skip


def created(one: Cluster, count: int) -> list[dict[str, float]]:
    """Create machines at once; seconds of each to every stage.  They are deleted afterwards."""
    label = f"run-{time.monotonic_ns()}"
    stages: dict[str, dict[str, float]] = {}
    done = threading.Event()
    begun = time.perf_counter()

    def reached(name: str, stage: str) -> None:
        stages[name].setdefault(stage, time.perf_counter() - begun)
        if len(stages) == count and all(set(each) == set(STAGES) for each in stages.values()):
            done.set()

    def pod_changed(pod: dict) -> None:
        name = pod["metadata"]["ownerReferences"][0]["name"]
        if name not in stages:
            return
        if pod["spec"].get("nodeName"):
            reached(name, "scheduled")
        if pod["status"].get("phase") == "Running" and "running" not in stages[name]:
            reached(name, "running")
            follow = (one, pod["metadata"]["name"], lambda: reached(name, "userland"))
            threading.Thread(target=until_prompt, args=follow, daemon=True).start()
        if any(
            c["type"] == "Ready" and c["status"] == "True"
            for c in pod["status"].get("conditions", [])
        ):
            reached(name, "ready")

    query = f"?watch=true&labelSelector=bench%3D{label}&timeoutSeconds=600"
    threading.Thread(target=watch, args=(one, PODS + query, pod_changed), daemon=True).start()
    time.sleep(0.3)
    begun = time.perf_counter()
    for number in range(count):
        name = f"{label}-{number}"
        stages[name] = {}
        one.call("POST", VMIS, vmi(name, labels={"bench": label}))
        reached(name, "admitted")
    assert done.wait(300), stages
    for name in stages:
        one.call("DELETE", f"{VMIS}/{name}")
    while one.call("GET", f"{VMIS}?labelSelector=bench%3D{label}")["items"]:
        time.sleep(0.1)
    return list(stages.values())


def watch(one: Cluster, path: str, changed: Callable[[dict], None]) -> None:
    connection = one.connect()
    connection.request("GET", path, headers=one.headers)
    answer = connection.getresponse()
    with contextlib.suppress(OSError):  # its machines have gone long before it times out
        while line := answer.readline():
            event = json.loads(line)
            if event["type"] in ("ADDED", "MODIFIED"):
                changed(event["object"])


def until_prompt(one: Cluster, pod: str, seen: Callable[[], None]) -> None:
    """Follow a pod's log, which is the machine's console, until the prompt is there."""
    connection = one.connect()
    path = f"{PODS}/{pod}/log?container=compute&follow=true"
    connection.request("GET", path, headers=one.headers)
    answer = connection.getresponse()
    text = b""
    while PROMPT not in text:
        chunk = answer.read1(4096)
        assert chunk, f"the log of {pod} ended without a prompt: {text[-300:]!r}"
        text += chunk
    seen()
    connection.close()


def has_agent(vmi: dict) -> bool:
    """Whether the guest's agent has answered."""
    return any(each["type"] == "AgentConnected" for each in vmi["status"].get("conditions", ()))


def idle(one: Cluster) -> list[Figure]:
    """What twenty idle machines of 128 MiB take, and what the manager takes for them."""
    before = one.memory_mib()
    for number in range(20):
        one.call("POST", VMIS, vmi(f"idle-{number}", memory="128Mi"))
    while not all(map(has_agent, one.call("GET", VMIS)["items"])):  # the last step of a boot
        time.sleep(0.5)
    time.sleep(20)
    processes = machines(one.directory)
    assert len(processes) == 20, processes
    manager, guests = one.cpu_seconds(), [cpu(pid) for pid in processes]
    time.sleep(30)
    manager = (one.cpu_seconds() - manager) / 30 * 100
    guests = [(cpu(pid) - past) / 30 * 100 for pid, past in zip(processes, guests, strict=True)]
    return [
        Figure(
            "a machine's QEMU, idle, 128Mi: PSS", [pss(pid) for pid in processes], "MiB", "≤ 95"
        ),
        Figure("a machine's QEMU, idle", guests, "% of a core", "≤ 0.15 %"),
        Figure("the manager, 20 idle machines", [manager], "% of a core", "≤ 0.2 %"),
        Figure(
            "the manager's memory a machine", [(one.memory_mib() - before) / 20], "MiB", "≤ 0.05"
        ),
    ]


def machines(directory: Path) -> list[int]:
    """The QEMU processes of a data directory, by the files that they have open."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if "qemu-system" not in (process / "comm").read_text():
                continue
            opened = [str(each.readlink()) for each in (process / "fd").iterdir()]
        except OSError:
            continue
        if any(each.startswith(str(directory)) for each in opened):
            found.append(int(process.name))
    return found


def pss(pid: int) -> float:
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) / 1024
    raise AssertionError


def cpu(pid: int) -> float:
    return time.clock_gettime((~pid << 3) | 2)
