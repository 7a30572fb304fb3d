"""Autoscaling hollow machines: how long from a load to a decision, and what looking costs."""

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from bench.cluster import Cluster, cluster, replica_set
from bench.figure import Figure

SETS = "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstancereplicasets"
AUTOSCALERS = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers"
METRICS = "/apis/metrics.k8s.io/v1beta1/namespaces/default/pods"
PODS = "/api/v1/namespaces/default/pods"
KUBECTL = str(Path(sys.executable).with_name("kubectl"))

LOADED = 7
MANY = 100
SYNC_SECONDS = 15.0
SYNCS = 4
BUSY = "300m"
CROSSING = 106_000_000 * 0.8 * 1.1
"""From how many billionths of a processor on a machine is too busy: it asks for 106m, and an
autoscaler that says nothing aims at 80 %, a tenth more or less."""


def measure() -> list[Figure]:
    with cluster("--machine", "hollow") as one:
        shown, decided = loads(one)
    with cluster("--machine", "hollow") as one:
        make(one, MANY)
        idle = cost(one)
        autoscale(one, MANY)
        watched = cost(one)
    return [
        Figure("load → its metric crosses", [at - begun for begun, at, _ in shown], "s"),
        Figure(
            "metric crosses → scale-up is decided",
            [max(then - at, 0.0) for _, at, then in shown],
            "s",
            f"≤ {SYNC_SECONDS:.0f} s",
        ),
        Figure("load → scale-up is decided", decided, "s"),
        Figure(f"CPU of a look at {MANY} sets", [1000 * (watched - idle)], "ms"),
        Figure(f"CPU of {SYNC_SECONDS:.0f} s without autoscalers", [1000 * idle], "ms"),
    ]


def loads(one: Cluster) -> tuple[list[tuple[float, float, float]], list[float]]:
    """When each set's machine was loaded, was seen to be, and was given a second one."""
    make(one, LOADED)
    autoscale(one, LOADED)
    wait(lambda: all(known(each) for each in items(one, AUTOSCALERS)))
    pods = {pod["metadata"]["labels"]["bench"]: pod["metadata"]["name"] for pod in items(one, PODS)}
    begun, seen, decided = {}, {}, {}
    waiting = sorted(pods)
    following = 0.0
    while len(decided) < LOADED:
        now = time.monotonic()
        if waiting and now >= following:  # at different moments of a look's 15 s
            name = waiting.pop()
            bear(one, pods[name])
            begun[name] = time.monotonic()
            following = now + SYNC_SECONDS / LOADED
        for name in busy(one, pods):
            seen.setdefault(name, time.monotonic())
        for each in items(one, SETS):
            if each["spec"]["replicas"] > 1:
                decided.setdefault(each["metadata"]["name"], time.monotonic())
        time.sleep(0.1)
    moments = [(begun[name], seen.get(name, decided[name]), decided[name]) for name in begun]
    return moments, [decided[name] - begun[name] for name in begun]


def make(one: Cluster, count: int) -> None:
    for number in range(count):
        document = replica_set(f"set-{number}", 1)
        domain = document["spec"]["template"]["spec"]["domain"]
        domain["resources"]["requests"]["cpu"] = "100m"
        one.call("POST", SETS, document)
    wait(
        lambda: (
            sum(each.get("status", {}).get("readyReplicas", 0) for each in items(one, SETS))
            == count
        )
    )


def autoscale(one: Cluster, count: int) -> None:
    for number in range(count):
        name = f"set-{number}"
        target = {
            "apiVersion": "kubevirt.io/v1",
            "kind": "VirtualMachineInstanceReplicaSet",
            "name": name,
        }
        one.call(
            "POST",
            AUTOSCALERS,
            {
                "metadata": {"name": name},
                "spec": {"scaleTargetRef": target, "minReplicas": 1, "maxReplicas": 2},
            },
        )


def cost(one: Cluster) -> float:
    """Seconds of CPU that the manager takes in 15 s, once it is at rest."""
    time.sleep(3 * SYNC_SECONDS)
    begun = one.cpu_seconds()
    time.sleep(SYNCS * SYNC_SECONDS)
    return (one.cpu_seconds() - begun) / SYNCS


def bear(one: Cluster, pod: str) -> None:
    """Put the load on a hollow machine."""
    command = [KUBECTL, "exec", pod, "--", "load", BUSY]
    subprocess.run(command, env=one.environment(), check=True, capture_output=True)


def busy(one: Cluster, pods: dict[str, str]) -> list[str]:
    """The sets whose machine is measured to be busy."""
    names = {pod: name for name, pod in pods.items()}
    return [
        names[each["metadata"]["name"]]
        for each in items(one, METRICS)
        if each["metadata"]["name"] in names
        and sum(nanos(part["usage"]["cpu"]) for part in each["containers"]) > CROSSING
    ]


def nanos(cpu: str) -> int:
    """Metrics come in billionths of a processor."""
    return int(cpu.removesuffix("n"))


def known(autoscaler: dict) -> bool:
    return any("resource" in each for each in autoscaler["status"].get("currentMetrics") or ())


def items(one: Cluster, path: str) -> list[dict]:
    return one.call("GET", path)["items"]


def wait(holds: Callable[[], object]) -> None:
    deadline = time.monotonic() + 180
    while not holds():
        if time.monotonic() > deadline:
            raise RuntimeError("not within 180 s")
        time.sleep(0.1)
