"""What the manager takes: resident memory by number of objects, and CPU while nothing happens."""

import time

from bench.api import VMIS
from bench.cluster import Cluster, cluster, vmi
from bench.figure import Figure
from bench.load import fill

IDLE_SECONDS = 120
"""The kernel counts in hundredths of a second, and some of what a manager does comes once a minute:
over 20 seconds one of those was five times what the rest takes."""
REST = 0.05
"""Of a core: a manager that takes less for ``LOOK_SECONDS`` is idle."""
LOOK_SECONDS = 5
LONGEST_SECONDS = 1200


def measure() -> list[Figure]:
    samples: dict[int, list[float]] = {0: [], 100: [], 10_000: []}
    idle = []
    with cluster("--machine", "hollow") as one:
        wait_until_idle(one)
        samples[0].append(one.memory_mib())
        for _ in range(3):
            before = one.cpu_seconds()
            time.sleep(IDLE_SECONDS)
            idle.append((one.cpu_seconds() - before) / IDLE_SECONDS * 100)
        done = 0
        for count in (100, 10_000):
            fill(one, VMIS, lambda number, done=done: vmi(f"filler-{done + number}"), count - done)
            done = count
            wait_until_idle(one)
            samples[count].append(one.memory_mib())
    goals = {0: "≤ 120 MiB", 10_000: "≤ 300 MiB"}
    return [
        *(
            Figure(f"manager resident, {count} VMIs", values, "MiB", goals.get(count, ""))
            for count, values in samples.items()
        ),
        Figure("manager idle, no machines", idle, "% of a core", "≤ 1 %"),
    ]


def wait_until_idle(one: Cluster) -> None:
    """Until all machines are up: what is on its way takes memory, too, and more on a busy host."""
    deadline = time.monotonic() + LONGEST_SECONDS
    while time.monotonic() < deadline:
        before = one.cpu_seconds()
        time.sleep(LOOK_SECONDS)
        if one.cpu_seconds() - before < REST * LOOK_SECONDS:
            return
    raise RuntimeError(f"the manager was not at rest within {LONGEST_SECONDS} s")
