"""Plugins that balance groups of pods: those of one owner, and those of a spread constraint."""

import pytest
from tests.unit.cluster.descheduler.clusters import World, node, replica_set, sizes, vmi

DUPLICATES = "RemoveDuplicates"


def three(*counts, **more):
    world = World(*(node(f"n{number}", labels={"zone": f"z{number}"}) for number in (1, 2, 3)))
    for name, count in zip(("n1", "n2", "n3"), counts, strict=True):
        world.fill(name, count, **more)
    return world


@pytest.mark.parametrize(
    ("counts", "evicted", "after"),
    [
        ((3, 0, 0), 2, [1, 1, 1]),
        ((6, 0, 0), 4, [2, 2, 2]),
        ((4, 1, 1), 2, [2, 2, 2]),
        ((2, 1, 1), 0, [1, 1, 2]),
        ((1, 1, 1), 0, [1, 1, 1]),
    ],
)
def test_vmis_of_one_owner_are_spread(counts, evicted, after):
    names, snapshot = three(*counts).evicted(DUPLICATES)
    assert len(names) == evicted
    assert sorted(sizes(snapshot).values()) == after


def test_vmis_of_different_owners_are_no_duplicates():
    world = World(node("n1"), node("n2"))
    for name in "abc":
        world.add(name, "n1", owner=replica_set(name))
    assert world.evicted(DUPLICATES)[0] == []


def test_kinds_of_owners_can_be_excluded():
    args = {"excludeOwnerKinds": ["VirtualMachineInstanceReplicaSet"]}
    assert three(3, 0, 0).evicted(DUPLICATES, args)[0] == []


def test_duplicates_stay_where_only_one_node_takes_them():
    selector = {"zone": "z1"}
    world = three(0, 0, 0)
    for name in ("a", "b", "c"):
        world.add(name, "n1", of=vmi(name, nodeSelector=selector), spec={"nodeSelector": selector})
    assert world.evicted(DUPLICATES)[0] == []


def test_duplicates_that_would_come_back_stay():
    world = three(3, 0, 0)
    for number in range(6):
        for name in ("n2", "n3"):
            world.add(f"busy-{name}-{number}", name, owner=replica_set(f"{name}{number}"))
    assert world.evicted(DUPLICATES)[0] == []


SPREAD = "RemovePodsViolatingTopologySpreadConstraint"


def constraint(max_skew=1, when="DoNotSchedule", **more):
    return {
        "maxSkew": max_skew,
        "topologyKey": "zone",
        "whenUnsatisfiable": when,
        "labelSelector": {"matchLabels": {"app": "a"}},
        **more,
    }


def spread(*counts, **more):
    limits = [constraint(**more)]
    return three(
        *counts,
        metadata={"labels": {"app": "a"}},
        spec={"topologySpreadConstraints": limits},
    )


@pytest.mark.parametrize(
    ("counts", "max_skew", "evicted", "after"),
    [
        ((3, 0, 0), 1, 2, [1, 1, 1]),
        ((4, 1, 1), 1, 2, [2, 2, 2]),
        ((2, 1, 1), 1, 0, [1, 1, 2]),
        ((3, 1, 1), 2, 0, [1, 1, 3]),
        ((5, 1, 0), 2, 2, [1, 2, 3]),
        ((6, 0, 0), 1, 4, [2, 2, 2]),
    ],
)
def test_domains_differ_by_the_skew_at_most(counts, max_skew, evicted, after):
    names, snapshot = spread(*counts, max_skew=max_skew).evicted(SPREAD)
    assert len(names) == evicted
    assert sorted(sizes(snapshot).values()) == after


@pytest.mark.parametrize(
    ("constraints", "evicted"), [(["DoNotSchedule"], 0), (["ScheduleAnyway"], 2)]
)
def test_soft_constraints_count_where_the_policy_says_so(constraints, evicted):
    world = spread(3, 0, 0, when="ScheduleAnyway")
    assert len(world.evicted(SPREAD, {"constraints": constraints})[0]) == evicted


def test_pods_that_must_stay_count_and_stay():
    world = spread(3, 0, 0)
    for name in world.owners:
        world.owners[name] = None
    assert world.evicted(SPREAD)[0] == []


def test_a_refused_eviction_does_not_end_the_others():
    names, snapshot = spread(3, 0, 0).evicted(SPREAD, refuse={"n1-0"})
    assert names == ["n1-1", "n1-2"]
    assert sizes(snapshot) == {"n1": 1, "n2": 1, "n3": 1}


@pytest.mark.parametrize(("policy", "evicted"), [("Ignore", 1), ("Honor", 0)])
def test_a_tainted_domain_counts_unless_the_constraint_says_otherwise(policy, evicted):
    world = spread(3, 1, 0, max_skew=2, nodeTaintsPolicy=policy)
    taint = {"key": "a", "effect": "NoSchedule"}
    world.nodes[2] = node("n3", labels={"zone": "z3"}, taints=[taint])
    assert len(world.evicted(SPREAD)[0]) == evicted
