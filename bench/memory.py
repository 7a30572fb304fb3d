"""What the manager takes: resident memory by number of objects, and CPU while nothing happens."""

import time

from bench.api import VMIS
from bench.cluster import cluster, vmi
from bench.figure import Figure
from bench.load import fill


def measure() -> list[Figure]:
    samples: dict[int, list[float]] = {0: [], 100: [], 10_000: []}
    idle = []
    with cluster("--machine", "hollow") as one:
        time.sleep(5)
        before = one.cpu_seconds()
        samples[0].append(one.memory_mib())
        time.sleep(20)
        idle.append((one.cpu_seconds() - before) / 20 * 100)
        done = 0
        for count in (100, 10_000):
            fill(one, VMIS, lambda number, done=done: vmi(f"filler-{done + number}"), count - done)
            done = count
            time.sleep(20 if count > 1000 else 5)
            samples[count].append(one.memory_mib())
    goals = {0: "≤ 120 MiB", 10_000: "≤ 300 MiB"}
    return [
        *(
            Figure(f"manager resident, {count} VMIs", values, "MiB", goals.get(count, ""))
            for count, values in samples.items()
        ),
        Figure("manager idle, no machines", idle, "% of a core", "≤ 1 %"),
    ]
