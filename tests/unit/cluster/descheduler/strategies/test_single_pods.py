"""Plugins that check each pod by itself: by taints, by node affinity, by age."""

import pytest
from tests.unit.cluster.descheduler.clusters import World, node, sizes, vmi

TAINT = {"key": "dedicated", "value": "special-user", "effect": "NoSchedule"}
TOLERATION = {"key": "dedicated", "operator": "Exists"}


def tainted(*, soft=False, **more):
    taint = {**TAINT, "effect": "PreferNoSchedule"} if soft else TAINT
    world = World(node("n1", taints=[taint]), node("n2"))
    world.add("a", "n1", **more)
    return world


@pytest.mark.parametrize(
    ("args", "evicted"),
    [
        ({}, ["a"]),
        ({"excludedTaints": ["dedicated"]}, []),
        ({"excludedTaints": ["dedicated=special-user"]}, []),
        ({"excludedTaints": ["dedicated=other", "reserved"]}, ["a"]),
        ({"includedTaints": ["dedicated"]}, ["a"]),
        ({"includedTaints": ["dedicated=special-user"]}, ["a"]),
        ({"includedTaints": ["reserved"]}, []),
        ({"namespaces": {"exclude": ["default"]}}, []),
        ({"namespaces": {"include": ["other"]}}, []),
        ({"labelSelector": {"matchLabels": {"a": "b"}}}, []),
    ],
)
def test_pods_that_do_not_tolerate_a_taint_go(args, evicted):
    assert tainted().evicted("RemovePodsViolatingNodeTaints", args)[0] == evicted


def test_a_tolerated_taint_does_not_matter():
    world = tainted(spec={"tolerations": [TOLERATION]})
    assert world.evicted("RemovePodsViolatingNodeTaints")[0] == []


@pytest.mark.parametrize("included", [True, False])
def test_soft_taints_count_where_the_policy_says_so(included):
    args = {"includePreferNoSchedule": included}
    names, _ = tainted(soft=True).evicted("RemovePodsViolatingNodeTaints", args)
    assert names == (["a"] if included else [])


def test_a_migration_needs_another_node():
    world = tainted(of=vmi("a", strategy="LiveMigrate"))
    world.nodes[1] = node("n2", unschedulable=True)
    assert world.evicted("RemovePodsViolatingNodeTaints")[0] == []


def affinity(kind, zone="b"):
    term = {"matchExpressions": [{"key": "zone", "operator": "In", "values": [zone]}]}
    required = {"nodeSelectorTerms": [term]}
    preferred = [{"weight": 90, "preference": term}]
    value = required if kind.startswith("required") else preferred
    return {"nodeAffinity": {kind: value}}


REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


@pytest.mark.parametrize("kind", [REQUIRED, PREFERRED])
@pytest.mark.parametrize(("zone", "evicted"), [("b", ["a"]), ("a", []), ("c", [])])
def test_pods_go_to_a_node_that_matches_their_affinity(kind, zone, evicted):
    world = World(node("n1", labels={"zone": "a"}), node("n2", labels={"zone": "b"}))
    world.add("a", "n1", of=vmi("a", affinity=affinity(kind, zone)))
    args = {"nodeAffinityType": [kind]}
    names, snapshot = world.evicted("RemovePodsViolatingNodeAffinity", args)
    assert names == evicted
    assert sizes(snapshot)["n2"] == len(evicted)


def test_a_node_selector_counts_as_required():
    world = World(node("n1"), node("n2", labels={"zone": "b"}))
    world.add("a", "n1", of=vmi("a", nodeSelector={"zone": "b"}))
    args = {"nodeAffinityType": [REQUIRED]}
    assert world.evicted("RemovePodsViolatingNodeAffinity", args)[0] == ["a"]


def aged():
    world = World(node("n1"), node("n2"))
    world.add("old", "n1", metadata={"creationTimestamp": "2025-11-01T00:00:00Z"})
    world.add("older", "n2", metadata={"creationTimestamp": "2025-10-01T00:00:00Z"})
    world.add("new", "n1", metadata={"creationTimestamp": "2025-12-31T23:59:00Z"})
    return world


@pytest.mark.parametrize(
    ("args", "evicted"),
    [
        ({"maxPodLifeTimeSeconds": 86400}, ["older", "old"]),
        ({"maxPodLifeTimeSeconds": 30}, ["older", "old", "new"]),
        ({"maxPodLifeTimeSeconds": 86400, "states": ["Pending"]}, []),
        ({"maxPodLifeTimeSeconds": 86400, "states": ["Running"]}, ["older", "old"]),
        (
            {
                "maxPodLifeTimeSeconds": 86400,
                "ownerKinds": {"exclude": ["VirtualMachineInstanceReplicaSet"]},
            },
            [],
        ),
        (
            {
                "maxPodLifeTimeSeconds": 86400,
                "ownerKinds": {"include": ["VirtualMachineInstance"]},
            },
            ["older", "old"],
        ),
        ({"exitCodes": [1]}, []),
        ({"conditions": [{"type": "Ready", "status": "False"}]}, []),
    ],
)
def test_old_pods_go_first(args, evicted):
    assert aged().evicted("PodLifeTime", args)[0] == evicted


@pytest.mark.parametrize(("seconds", "evicted"), [(3600, ["a"]), (7200, [])])
def test_a_condition_must_have_lasted(seconds, evicted):
    condition = {
        "type": "Ready",
        "status": "False",
        "lastTransitionTime": "2025-12-31T22:30:00Z",
    }
    world = World(node("n1"), node("n2"))
    world.add("a", "n1", status={"phase": "Running", "conditions": [condition]})
    required = {"type": "Ready", "status": "False", "minTimeSinceLastTransitionSeconds": seconds}
    assert world.evicted("PodLifeTime", {"conditions": [required]})[0] == evicted


def test_reasons_of_containers_are_states():
    container = {
        "name": "compute",
        "image": "a",
        "imageID": "",
        "ready": False,
        "restartCount": 0,
        "state": {"waiting": {"reason": "ImagePullBackOff"}},
    }
    world = World(node("n1"), node("n2"))
    world.add("a", "n1", status={"phase": "Pending", "containerStatuses": [container]})
    assert world.evicted("PodLifeTime", {"states": ["ImagePullBackOff"]})[0] == ["a"]
