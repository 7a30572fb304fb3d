"""A pool of 100 hollow machines: up until all run, rolled once, and back to none."""

import time

from bench.cluster import Cluster, cluster, replica_set
from bench.figure import Figure

POOLS = "/apis/pool.kubevirt.io/v1beta1/namespaces/default/virtualmachinepools"
MACHINES = "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstances"
VMS = "/apis/kubevirt.io/v1/namespaces/default/virtualmachines"
MERGE = "application/merge-patch+json"
COUNT = 100


def measure() -> list[Figure]:
    up, rolled, down = [], [], []
    for _ in range(3):
        with cluster("--machine", "hollow") as one:
            one.call("POST", POOLS, pool("many", 0))
            up.append(timed(one, {"replicas": COUNT}, COUNT))
            before = uids(one)
            begun = time.perf_counter()
            grace = {"spec": {"template": {"spec": {"terminationGracePeriodSeconds": 1}}}}
            change(one, {"virtualMachineTemplate": grace})
            while uids(one) & before:
                time.sleep(0.05)
            one.settle(POOLS, COUNT, (MACHINES, VMS))
            rolled.append(time.perf_counter() - begun)
            down.append(timed(one, {"replicas": 0}, 0))
    return [
        Figure(f"pool 0 → {COUNT} hollow machines Running and Ready", up, "s", "≤ 5 s"),
        Figure(f"a new template: {COUNT} machines made anew", rolled, "s"),
        Figure(f"{COUNT} → 0, every object gone", down, "s", "≤ 1.5 s"),
    ]


def pool(name: str, replicas: int) -> dict:
    """The pool whose machines are those of the replica sets that are measured."""
    template = replica_set(name, replicas)["spec"]["template"]
    labels = template["metadata"]["labels"]
    return {
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "virtualMachineTemplate": {
                "metadata": {"labels": labels},
                "spec": {"runStrategy": "Always", "template": template},
            },
        },
    }


def timed(one: Cluster, spec: dict, count: int) -> float:
    begun = time.perf_counter()
    change(one, spec)
    one.settle(POOLS, count, (MACHINES, VMS))
    return time.perf_counter() - begun


def change(one: Cluster, spec: dict) -> None:
    one.call("PATCH", f"{POOLS}/many", {"spec": spec}, MERGE)


def uids(one: Cluster) -> set[str]:
    return {item["metadata"]["uid"] for item in one.call("GET", MACHINES)["items"]}
