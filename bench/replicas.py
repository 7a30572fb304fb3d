"""A replica set of 1000 hollow machines: up until all run, and back to none."""

import json
import time

from bench.cluster import Cluster, cluster, replica_set
from bench.figure import Figure

SETS = "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstancereplicasets"
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
                wait(one, count)
                samples.append(time.perf_counter() - begun)
    return [
        Figure(f"0 → {COUNT} hollow machines Running and Ready", up, "s", "≤ 10 s"),
        Figure(f"{COUNT} → 0, every object gone", down, "s", "≤ 10 s"),
    ]


def wait(one: Cluster, count: int) -> None:
    """Follow the set by watch until its status says so, then see that no other VMI is left."""
    connection = one.connect()
    connection.request("GET", f"{SETS}?watch=true&timeoutSeconds=300", headers=one.headers)
    answer = connection.getresponse()
    while line := answer.readline():
        status = json.loads(line)["object"].get("status", {})
        if status.get("replicas", 0) == status.get("readyReplicas", 0) == count:
            break
    else:
        raise RuntimeError("the set did not settle within 300 s")
    connection.close()
    while True:
        left = one.call("GET", SETS.replace("replicasets", "s") + "?limit=1")
        total = len(left["items"]) + left["metadata"].get("remainingItemCount", 0)
        if total == count:
            return
        time.sleep(0.05)
