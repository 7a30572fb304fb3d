"""A replica set of 1000 hollow machines: up until all run, and back to none."""

import time

from bench.cluster import cluster, replica_set
from bench.figure import Figure

SETS = "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstancereplicasets"
MACHINES = "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstances"
COUNT = 1000


def measure() -> list[Figure]:
    up, down = [], []
    for _ in range(3):
        with cluster("--machine", "hollow") as one:
            one.call("POST", SETS, replica_set("many", 0))
            for count, samples in ((COUNT, up), (0, down)):
                begun = time.perf_counter()
                one.call(
                    "PATCH",
                    f"{SETS}/many/scale",
                    {"spec": {"replicas": count}},
                    "application/merge-patch+json",
                )
                one.settle(SETS, count, (MACHINES,))
                samples.append(time.perf_counter() - begun)
    return [
        Figure(f"0 → {COUNT} hollow machines Running and Ready", up, "s", "≤ 6 s"),
        Figure(f"{COUNT} → 0, every object gone", down, "s", "≤ 3 s"),
    ]
