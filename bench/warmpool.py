"""A set that heals and grows from the spares of a warm pool: hollow machines, and real ones.

Hollow machines boot for three seconds, so that only spares can be ready in time.
"""

import time
from collections.abc import Callable

from bench.boot import demo_disk
from bench.cluster import Cluster, cluster, replica_set
from bench.figure import Figure

SETS = "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstancereplicasets"
MACHINES = "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstances"
POOLS = "/apis/corral.dev/v1alpha1/namespaces/default/virtualmachinewarmpools"
MERGE = "application/merge-patch+json"
NAME = "many"
MEMBERS, SPARES, ROUNDS = 3, 5, 5
TARGET = {
    "apiVersion": "kubevirt.io/v1",
    "kind": "VirtualMachineInstanceReplicaSet",
    "name": NAME,
}
COPIES, COPY_ROUNDS = 10, 3


def measure() -> list[Figure]:
    healed, grown = [], []
    for _ in range(ROUNDS):
        with cluster("--machine", "hollow", "--hollow-boot-seconds", "3") as one:
            prepare(one, MEMBERS, SPARES)
            grown.append(seconds(one, lambda one=one: scale(one, MEMBERS + SPARES), 8))
            one.settle(POOLS, SPARES, ())
            healed.append(seconds(one, lambda one=one: delete_member(one), 8))
    return [
        Figure("a deleted member is replaced by a ready spare", healed, "s", "≤ 0.1 s"),
        Figure("3 → 8 ready members with 5 spares", grown, "s", "≤ 0.5 s"),
        Figure("the same for a real machine: replaced", real(), "s", "≤ 0.1 s"),
        Figure(f"0 → {COPIES} real members from one checkpoint", copies(), "s", "≤ 2 s"),
    ]


def real() -> list[float]:
    with cluster() as one:
        demo_disk(one.directory)
        prepare(one, 1, 1)
        samples = []
        for _ in range(ROUNDS):
            samples.append(seconds(one, lambda: delete_member(one), 1))
            one.settle(POOLS, 1, ())
        return samples


def copies() -> list[float]:
    """Return the seconds until members without spares are ready, which start from a checkpoint.

    They are ready as machines of their own: with a host name, keys and random numbers.
    """
    with cluster() as one:
        demo_disk(one.directory)
        members = replica_set(NAME, 0)
        spec = members["spec"]["template"]["spec"]
        spec["domain"]["devices"]["interfaces"] = [{"name": "default", "masquerade": {}}]
        spec["networks"] = [{"name": "default", "pod": {}}]
        one.call("POST", SETS, members)
        pool = {"targetRef": TARGET, "replicas": 0, "startFrom": "Checkpoint"}
        one.call("POST", POOLS, {"metadata": {"name": "spares"}, "spec": pool})
        while not one.call("GET", f"{POOLS}/spares").get("status", {}).get("checkpoint"):
            time.sleep(0.1)
        samples = []
        for _ in range(COPY_ROUNDS):
            samples.append(seconds(one, lambda: scale(one, COPIES), COPIES))
            scale(one, 0)
            while one.total(MACHINES):
                time.sleep(0.1)
        return samples


def prepare(one: Cluster, members: int, spares: int) -> None:
    """Create a set and its warm pool, and wait until both are ready."""
    one.call("POST", SETS, replica_set(NAME, members))
    spec = {"targetRef": TARGET, "replicas": spares}
    one.call("POST", POOLS, {"metadata": {"name": "spares"}, "spec": spec})
    one.settle(SETS, members, ())
    one.settle(POOLS, spares, ())


def scale(one: Cluster, replicas: int) -> None:
    one.call("PATCH", f"{SETS}/{NAME}/scale", {"spec": {"replicas": replicas}}, MERGE)


def delete_member(one: Cluster) -> None:
    """Delete a member; its set shows that it lacks one only when it is replaced already."""
    selector = f"?labelSelector=bench%3D{NAME}"
    listed = [each["metadata"] for each in one.call("GET", MACHINES + selector)["items"]]
    name = next(each["name"] for each in listed if "deletionTimestamp" not in each)
    one.call("DELETE", f"{MACHINES}/{name}")


def seconds(one: Cluster, act: Callable[[], None], members: int) -> float:
    """Return the seconds from an act until so many members are ready, none of them going."""
    begun = time.perf_counter()
    act()
    while ready_members(one) != members:
        pass
    return time.perf_counter() - begun


def ready_members(one: Cluster) -> int:
    listed = one.call("GET", f"{MACHINES}?labelSelector=bench%3D{NAME}")["items"]
    return sum(
        "deletionTimestamp" not in vmi["metadata"]
        and {"Ready": "True"}.items()
        <= {
            each["type"]: each["status"] for each in vmi.get("status", {}).get("conditions", ())
        }.items()
        for vmi in listed
    )
