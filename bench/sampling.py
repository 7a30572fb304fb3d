"""What it costs to look at a hundred machines, which is done every 15 seconds, and to be asked.

The machines are processes that sleep: what is read of them is what is read of QEMU.
"""

import asyncio
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from lightkube.models.core_v1 import Container, Namespace, Pod, PodSpec
from lightkube.models.meta_v1 import ObjectMeta

from bench.figure import Figure
from corral.api.kinds.usage import POD_METRICS, PodMetrics
from corral.api.request import User
from corral.client.client import Client
from corral.client.transport import InProcess
from corral.node.host.process import Process
from corral.node.metrics.sampling.sampler import RunningPod, Sampler
from corral.node.qemu.guest import QemuGuest
from corral.node.state.facts import Facts, State
from corral.reconcile.batch import for_each
from corral.server.app import ApiServer
from corral.store import Store

ADMIN = User(name="kubernetes-admin", groups=("system:masters", "system:authenticated"))
COUNT, LOOKS, LISTS = 100, 100, 30


def measure() -> list[Figure]:
    with tempfile.TemporaryDirectory() as directory:
        return asyncio.run(_measure(Path(directory)))


async def _measure(directory: Path) -> list[Figure]:
    with _guests(directory) as guests:
        pods = [_pod(number) for number in range(COUNT)]
        machines: list[Any] = [
            SimpleNamespace(guest=guest, facts=Facts(state=State.RUNNING)) for guest in guests
        ]
        sampler = Sampler()
        sampler.add("here", lambda: map(RunningPod, pods, machines))
        sampler.sample()
        wakes = _wakes(guests)
        looks = [_cost(sampler.sample) for _ in range(LOOKS)]
        woken = _wakes(guests) - wakes
        lists = await _lists(sampler, pods)
    return [
        Figure(
            f"CPU of one look at {COUNT} machines",
            looks,
            "ms",
            "at most 20 ms, every 15 s",
            {"guests woken": woken, "looks": LOOKS},
        ),
        Figure(f"CPU of a list of {COUNT} PodMetrics", lists, "ms"),
    ]


@contextmanager
def _guests(directory: Path) -> Iterator[list[QemuGuest]]:
    """Processes in the place of QEMU: each has its own directory and nothing to do."""
    guests = []
    silent: Any = SimpleNamespace(events=asyncio.Queue())
    with open(os.devnull, "wb") as nowhere:  # noqa: PTH123
        for number in range(COUNT):
            own = directory / str(number)
            own.mkdir()
            process = Process.spawn(["sleep", "600"], own, descriptors=[], output=nowhere.fileno())
            guests.append(QemuGuest(own, process, silent, "running"))
    try:
        yield guests
    finally:
        for guest in guests:
            os.kill(guest.pid, 9)


def _cost(work: Any) -> float:
    """Milliseconds of processor time, those in the kernel included."""
    begun = time.process_time()
    work()
    return (time.process_time() - begun) * 1e3


def _wakes(guests: list[QemuGuest]) -> int:
    """How often the processes have left the processor by themselves."""
    statuses = (Path(f"/proc/{guest.pid}/status").read_text() for guest in guests)
    return sum(int(text.partition("voluntary_ctxt_switches:")[2].split()[0]) for text in statuses)


async def _lists(sampler: Sampler, pods: list[Pod]) -> list[float]:
    """What it costs to be asked for all of them, as the autoscaler asks."""
    store = Store.in_memory()
    server = ApiServer(store, observed={POD_METRICS.resource: sampler.pod_metrics})
    client = Client(InProcess(server.handle, ADMIN))
    await client.create(Namespace, {"metadata": {"name": "default"}})
    await for_each(pods, lambda pod: client.create(Pod, pod))
    costs = []
    for _ in range(LISTS):
        begun = time.process_time()
        found = await client.list(PodMetrics, "default", labels="app=lab")
        costs.append((time.process_time() - begun) * 1e3)
        assert len(found.items) == COUNT, len(found.items)
    await store.close()
    return costs


def _pod(number: int) -> Pod:
    containers = [Container(name=name, image="x") for name in ("compute", "volumedisk")]
    metadata = ObjectMeta(name=f"vm-{number}", namespace="default", labels={"app": "lab"})
    return Pod(metadata=metadata, spec=PodSpec(containers=containers))
