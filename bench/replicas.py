"""A replica set of 1000 hollow machines: up until all run, and back to none.

Other load on the host lengthens the seconds more than the manager's processor time.
"""

import time

from bench.cluster import cluster, replica_set
from bench.figure import Figure

SETS = "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstancereplicasets"
MACHINES = "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstances"
COUNT = 1000


def measure() -> list[Figure]:
    up, down = [], []
    up_work, down_work = [], []
    for _ in range(3):
        with cluster("--machine", "hollow") as one:
            one.call("POST", SETS, replica_set("many", 0))
            for count, samples, work in ((COUNT, up, up_work), (0, down, down_work)):
                begun, before = time.perf_counter(), one.cpu_seconds()
                one.call(
                    "PATCH",
                    f"{SETS}/many/scale",
                    {"spec": {"replicas": count}},
                    "application/merge-patch+json",
                )
                one.settle(SETS, count, (MACHINES,))
                samples.append(time.perf_counter() - begun)
                work.append((one.cpu_seconds() - before) / COUNT * 1000)
    return [
        Figure(f"0 → {COUNT} hollow machines Running and Ready", up, "s", "≤ 6 s"),
        Figure(f"{COUNT} → 0, every object gone", down, "s", "≤ 3 s"),
        Figure("the manager's processor for a start", up_work, "ms", "≤ 6 ms"),
        Figure("the manager's processor for an end", down_work, "ms"),
    ]
