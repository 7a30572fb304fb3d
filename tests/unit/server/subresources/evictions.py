"""Pods, budgets and machines as they are stored, and their evictions."""

import copy

from tests.unit.server.conftest import PODS

from corral.api.object import Key

BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
LABELS = {"app": "web", "kubevirt.io": "virt-launcher"}


async def store_pod(ask, name="web", phase="Running", ready="True", machine=""):
    """Store a pod that runs on a node; ``machine`` names the one that it holds."""
    document = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": f"uid-of-{name}",
            "labels": LABELS,
            "annotations": {"kubevirt.io/domain": machine} if machine else {},
        },
        "spec": {"nodeName": "one", "containers": [{"name": "a", "image": "b"}]},
        "status": {"phase": phase, "conditions": [{"type": "Ready", "status": ready}]},
    }
    await ask.server.store.write("pods", Key("default", name), document)


async def store_budget(ask, allowed=1, name="web", spec=None, **status):
    """Store a budget as its controller left it."""
    document = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": f"uid-of-{name}",
            "generation": 1,
        },
        "spec": {"selector": {"matchLabels": {"app": "web"}}, **(spec or {})},
        "status": {
            "observedGeneration": 1,
            "disruptionsAllowed": allowed,
            "currentHealthy": 3,
            "desiredHealthy": 3 - allowed,
            "expectedPods": 3,
            **status,
        },
    }
    await ask.server.store.write("poddisruptionbudgets.policy", Key("default", name), document)


async def store_machine(ask, machine, strategy=None, **status):
    """Store the machine of a pod, with an eviction strategy."""
    document = copy.deepcopy(machine)
    document["metadata"] |= {"namespace": "default", "uid": "uid-1"}
    if strategy is not None:
        document["spec"]["evictionStrategy"] = strategy
    document["status"] = {"phase": "Running", "nodeName": "one", **status}
    key = Key("default", "vm")
    await ask.server.store.write("virtualmachineinstances.kubevirt.io", key, document)


async def evict(ask, name="web", version="policy/v1", query="", **fields):
    eviction = {"apiVersion": version, "kind": "Eviction", "metadata": {"name": name}, **fields}
    return await ask("POST", f"{PODS}/{name}/eviction{query}", eviction)


async def is_being_deleted(ask, name="web"):
    return "deletionTimestamp" in (await ask("GET", f"{PODS}/{name}")).metadata


async def budget_status(ask, name="web"):
    return (await ask("GET", f"{BUDGETS}/{name}"))["status"]
