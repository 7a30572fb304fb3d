import msgspec
import pytest
from tests.unit.cluster.descheduler.clusters import SET, World, node, replica_set, vmi

from corral.api.kinds.kubevirt.virtualmachine import VirtualMachine
from corral.cluster.descheduler.default_evictor import EVICT, PREFER_NO_EVICTION
from corral.cluster.descheduler.eviction_outcome import EvictionOutcome, eviction_outcome


def vm(strategy):
    template = {"metadata": {}, "spec": {"domain": {"devices": {}}}}
    return msgspec.convert(
        {"metadata": {"name": "vm"}, "spec": {"template": template, "runStrategy": strategy}},
        VirtualMachine,
    )


@pytest.mark.parametrize(
    ("strategy", "migratable", "owner", "result"),
    [
        ("", True, SET, EvictionOutcome.REPLACEMENT),
        ("None", True, SET, EvictionOutcome.REPLACEMENT),
        ("LiveMigrate", True, None, EvictionOutcome.MIGRATION),
        ("LiveMigrate", False, SET, EvictionOutcome.REFUSED),
        ("LiveMigrateIfPossible", True, None, EvictionOutcome.MIGRATION),
        ("LiveMigrateIfPossible", False, SET, EvictionOutcome.REPLACEMENT),
        ("LiveMigrateIfPossible", False, None, EvictionOutcome.LOSS),
        ("External", False, None, EvictionOutcome.MIGRATION),
        ("", True, None, EvictionOutcome.LOSS),
        ("", True, vmi("itself"), EvictionOutcome.LOSS),
        ("", True, vm("Always"), EvictionOutcome.REPLACEMENT),
        ("", True, vm("RerunOnFailure"), EvictionOutcome.LOSS),
        ("", True, vm("Manual"), EvictionOutcome.LOSS),
        ("", True, replica_set(deletionTimestamp="2026-01-01T00:00:00Z"), EvictionOutcome.LOSS),
    ],
)
def test_what_becomes_of_an_evicted_vmi(strategy, migratable, owner, result):
    machine = vmi("a", strategy=strategy, migratable=migratable)
    assert eviction_outcome(machine, owner) is result


def test_the_clusters_eviction_strategy_applies_to_vmis_without_one():
    assert eviction_outcome(vmi("a"), None, "LiveMigrate") is EvictionOutcome.MIGRATION
    assert (
        eviction_outcome(vmi("a", strategy="None"), SET, "LiveMigrate")
        is EvictionOutcome.REPLACEMENT
    )


def refusals(evictor=None, *, inputs=None, **pod):
    world = World(node("n1"), node("n2"))
    world.add("a", "n1", **pod)
    handle = world.handle(evictor, **(inputs or {}))
    [one] = handle.snapshot.pods_on("n1")
    return list(handle.evictor.refusals(one))


def test_a_replaced_vmi_may_be_evicted():
    assert refusals() == []


@pytest.mark.parametrize(
    ("evictor", "pod", "reason"),
    [
        ({}, {"owner": None}, "nothing would start it again"),
        ({}, {"of": vmi("a", strategy="LiveMigrate", migratable=False)}, "not live-migratable"),
        ({}, {"spec": {"priority": 2_000_000_000}}, "system critical priority"),
        (
            {},
            {"of": vmi("a", volumes=[{"name": "d", "emptyDisk": {"capacity": "1Gi"}}])},
            "local storage",
        ),
        (
            {},
            {"of": vmi("a", volumes=[{"name": "d", "hostDisk": {"path": "/d", "type": "Disk"}}])},
            "local storage",
        ),
        ({"minReplicas": 2}, {}, "owner has 1 replicas which is less than minReplicas of 2"),
        (
            {"minPodAge": "1h"},
            {"status": {"phase": "Running", "startTime": "2025-12-31T23:30:00Z"}},
            "pod age is not older than MinPodAge: 1h",
        ),
        ({"minPodAge": "1h"}, {}, "pod age"),
        ({"labelSelector": {"matchLabels": {"a": "b"}}}, {}, "pod labels do not match"),
        ({"ignorePodsWithoutPDB": True}, {}, "does not have a PodDisruptionBudget"),
        (
            {"noEvictionPolicy": "Mandatory"},
            {"metadata": {"annotations": {PREFER_NO_EVICTION: ""}}},
            PREFER_NO_EVICTION,
        ),
    ],
)
def test_pods_are_protected(evictor, pod, reason):
    [found] = refusals(evictor, **pod)
    assert reason in found


@pytest.mark.parametrize(
    ("evictor", "pod"),
    [
        ({"evictLocalStoragePods": True}, {"of": vmi("a", volumes=[{"name": "d", "emptyDisk": {
            "capacity": "1Gi"}}])}),
        ({"podProtections": {"defaultDisabled": ["SystemCriticalPods"]}},
         {"spec": {"priority": 2_000_000_000}}),
        ({}, {"of": vmi("a", strategy="LiveMigrate", volumes=[
            {"name": "d", "emptyDisk": {"capacity": "1Gi"}}])}),
        ({}, {"metadata": {"annotations": {PREFER_NO_EVICTION: ""}}}),
        ({"labelSelector": {"matchLabels": {"a": "b"}}}, {"metadata": {"labels": {"a": "b"}}}),
        ({"minPodAge": "1h"}, {"status": {"phase": "Running",
                                          "startTime": "2025-12-31T22:30:00Z"}}),
        ({"minReplicas": 9}, {"of": vmi("a", annotations={EVICT: "true"}), "owner": None}),
    ],
)  # fmt: skip
def test_pods_are_not_protected(evictor, pod):
    assert refusals(evictor, **pod) == []


@pytest.mark.parametrize(
    ("evictor", "classes", "protected"),
    [
        ({}, {"fast"}, False),
        ({"ignorePvcPods": True}, {"fast"}, True),
        ({"ignorePvcPods": True}, set(), False),
        ({"podProtections": {"extraEnabled": ["PodsWithPVC"]}}, {"fast"}, True),
        (
            {
                "podProtections": {
                    "extraEnabled": ["PodsWithPVC"],
                    "config": {"PodsWithPVC": {"protectedStorageClasses": [{"name": "slow"}]}},
                }
            },
            {"fast"},
            False,
        ),
    ],
)
def test_pods_with_claims_are_protected_where_the_policy_says_so(evictor, classes, protected):
    inputs = {"storage_classes": lambda _: frozenset(classes)}
    assert bool(refusals(evictor, inputs=inputs)) is protected


@pytest.mark.parametrize(("priority", "protected"), [(99, False), (100, True), (101, True)])
def test_pods_of_the_threshold_and_above_are_protected(priority, protected):
    found = refusals({}, inputs={"threshold": 100}, spec={"priority": priority})
    assert bool(found) is protected


def test_replicas_are_the_vmis_of_the_topmost_owner():
    world = World(node("n1"), node("n2"))
    world.fill("n1", 2)
    world.fill("n2", 1)
    world.add("other", "n2", owner=replica_set("other"))
    handle = world.handle({"minReplicas": 3})
    allowed = [one.key.name for one in handle.snapshot.pods() if handle.evictor.allows(one)]
    assert allowed == ["n1-0", "n1-1", "n2-0"]


@pytest.mark.parametrize(
    ("evictor", "inputs", "allowed"),
    [
        ({}, {}, True),
        ({"nodeFit": True}, {}, False),
        ({"namespaceLabelSelector": {"matchLabels": {"a": "b"}}}, {"namespaces": {}}, False),
        (
            {"namespaceLabelSelector": {"matchLabels": {"a": "b"}}},
            {"namespaces": {"default": {"a": "b"}}},
            True,
        ),
    ],
)
def test_node_fit_and_namespaces_are_checked_before_the_eviction(evictor, inputs, allowed):
    world = World(node("n1"), node("n2", cpu="100m"))
    world.add("a", "n1")
    handle = world.handle(evictor, **inputs)
    [one] = handle.snapshot.pods_on("n1")
    assert handle.evictor.allows_now(one) is allowed
