"""How many are made and which are taken away."""

from random import Random

import pytest
from hypothesis import given, strategies as st
from tests.unit.controllers.pool.make import pool, vm

from corral.controllers.pool.scale_plan import (
    LEAVING,
    desired_replicas,
    plan,
    preservation_of,
    scale_in_preservation,
)


def numbers(vms) -> list[int]:
    return [int(one.metadata.name.rpartition("-")[2]) for one in vms]


def strategy(name="proactive", **fields):
    return {"scaleInStrategy": {name: fields}}


def sorted_by(policy, **selectors):
    chosen = {"sortPolicy": policy, **({"selectors": selectors} if selectors else {})}
    return strategy(selectionPolicy=chosen)


def decide(one, owned, burst=250):
    return plan(one, owned, Random(1), burst=burst)


def test_replicas_default_to_one():
    assert desired_replicas(pool(replicas=None)) == 1
    assert desired_replicas(pool(replicas=0)) == 0


@pytest.mark.parametrize(
    ("replicas", "there", "going", "create", "remove"),
    [
        (3, 0, 0, 3, 0),
        (3, 3, 0, 0, 0),
        (3, 2, 1, 0, 0),  # one that goes counts until it is gone
        (3, 5, 0, 0, 2),
        (3, 4, 1, 0, 1),  # of two too many one goes already
        (3, 3, 2, 0, 0),
        (4, 3, 2, 0, 0),  # more go than are too many: nothing is negative
        (300, 0, 0, 250, 0),
        (0, 300, 0, 0, 250),
    ],
)
def test_a_plan_brings_the_pool_to_the_desired_replicas(replicas, there, going, create, remove):
    one = pool(replicas=replicas)
    owned = [vm(one, number) for number in range(there)]
    owned += [vm(one, there + number, going=True) for number in range(going)]
    decided = decide(one, owned)
    assert (decided.create, len(decided.remove)) == (create, remove)
    assert all(not each.metadata.deletion_timestamp for each in decided.remove)


def test_a_vm_chosen_for_deletion_is_not_replaced_by_another_choice():
    one = pool(replicas=2, **sorted_by("AscendingOrder"))
    owned = [vm(one, number) for number in range(3)]
    owned.append(vm(one, 3, annotations={LEAVING: "Online"}))
    assert numbers(decide(one, owned).remove) == [0]


@pytest.mark.parametrize("name", ["opportunistic", "unmanaged"])
def test_the_unmanaged_strategy_deletes_nothing(name):
    one = pool(replicas=1, **strategy(name))
    assert decide(one, [vm(one, number) for number in range(4)]).remove == ()


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("AscendingOrder", [1, 2]),
        ("DescendingOrder", [10, 3]),
        ("Newest", [2, 10]),
        ("Oldest", [3, 1]),
    ],
)
def test_deletions_follow_the_order_of_the_policy(policy, expected):
    one = pool(replicas=2, **sorted_by(policy))
    ages = {1: 5, 2: 9, 3: 1, 10: 7}
    owned = [vm(one, number, created=age, ready=number > 2) for number, age in ages.items()]
    assert numbers(decide(one, owned).remove) == expected


def test_vms_without_an_ordinal_come_first():
    one = pool(replicas=1, **sorted_by("AscendingOrder"))
    owned = [vm(one, 4), vm(one, name="web-old"), vm(one, 2)]
    [first, _] = decide(one, owned).remove
    assert first.metadata.name == "web-old"


def test_without_a_policy_the_order_is_random():
    one = pool(replicas=5)
    owned = [vm(one, number) for number in range(10)]
    chosen = {tuple(numbers(plan(one, owned, Random(seed)).remove)) for seed in range(20)}
    assert len(chosen) > 10


def labelled(one, number, **labels):
    return vm(
        one, number, template={"metadata": {"labels": labels}, "spec": {"domain": {"devices": {}}}}
    )


def on_node(one, number, **labels):
    spec = {"domain": {"devices": {}}, "nodeSelector": labels}
    return vm(one, number, template={"spec": spec})


def test_label_selectors_match_labels_of_the_vmi_template():
    selectors = {"labelSelector": {"matchLabels": {"shard": "b"}}}
    one = pool(replicas=0, **sorted_by("AscendingOrder", **selectors))
    owned = [labelled(one, 0, shard="a"), labelled(one, 1, shard="b"), vm(one, 2)]
    owned[2].metadata.labels["shard"] = "b"  # its own labels do not count
    assert numbers(decide(one, owned).remove) == [1]


@pytest.mark.parametrize(
    ("requirement", "expected"),
    [
        ({"operator": "In", "values": ["b", "c"]}, [1]),
        ({"operator": "NotIn", "values": ["b"]}, [0, 2, 3]),
        ({"operator": "Exists"}, [0, 1, 2]),
        ({"operator": "DoesNotExist"}, [3]),
        ({"operator": "Gt", "values": ["4"]}, [2]),
        ({"operator": "Lt", "values": ["6"]}, [2]),
    ],
)
def test_node_requirements_match_node_selectors_of_the_vmi(requirement, expected):
    selectors = {"nodeSelectorRequirementMatcher": [{"key": "zone", **requirement}]}
    one = pool(replicas=0, **sorted_by("AscendingOrder", **selectors))
    owned = [on_node(one, number, zone=zone) for number, zone in enumerate(["a", "b", "5"])]
    owned.append(vm(one, 3))
    assert numbers(decide(one, owned).remove) == expected


def test_both_kinds_of_selectors_must_match():
    selectors = {
        "labelSelector": {"matchLabels": {"shard": "b"}},
        "nodeSelectorRequirementMatcher": [{"key": "zone", "operator": "Exists"}],
    }
    one = pool(replicas=0, **sorted_by("AscendingOrder", **selectors))
    owned = [labelled(one, 0, shard="b"), on_node(one, 1, zone="a")]
    both = {
        "metadata": {"labels": {"shard": "b"}},
        "spec": {"domain": {"devices": {}}, "nodeSelector": {"zone": "a"}},
    }
    owned.append(vm(one, 2, template=both))
    assert numbers(decide(one, owned).remove) == [2]


def test_selectors_that_match_too_few_vms_delete_only_these():
    selectors = {"labelSelector": {"matchLabels": {"shard": "none"}}}
    one = pool(replicas=0, **sorted_by("Random", **selectors))
    assert decide(one, [vm(one, number) for number in range(3)]).remove == ()


@pytest.mark.parametrize(
    ("fields", "removed", "deleted_by_users"),
    [
        ({}, "Disabled", "Disabled"),
        (strategy(), "Disabled", "Disabled"),
        (strategy(statePreservation="Offline"), "Offline", "Disabled"),
        (strategy(statePreservation="Online"), "Online", "Disabled"),
        (strategy("opportunistic"), "Disabled", "Disabled"),
        (strategy("opportunistic", statePreservation="Offline"), "Disabled", "Offline"),
        (strategy("unmanaged"), "Disabled", "Disabled"),
    ],
)
def test_state_preservation_depends_on_who_deleted_the_vm(fields, removed, deleted_by_users):
    one = pool(**fields)
    assert scale_in_preservation(one) == removed
    assert preservation_of(one, vm(one)) == deleted_by_users


@pytest.mark.parametrize("marked_preservation", ["Disabled", "Offline", "Online"])
def test_state_preservation_is_fixed_when_a_vm_is_chosen(marked_preservation):
    one = pool(**strategy("opportunistic", statePreservation="Offline"))
    assert (
        preservation_of(one, vm(one, annotations={LEAVING: marked_preservation}))
        == marked_preservation
    )
    assert preservation_of(one, vm(one, annotations={LEAVING: "nonsense"})) == "Offline"


@given(
    st.integers(0, 12),
    st.lists(st.sampled_from(["there", "going", "leaving"]), max_size=12),
    st.integers(1, 5),
    st.integers(0, 99),
)
def test_a_plan_never_overshoots(replicas, states, burst, seed):
    one = pool(replicas=replicas)
    owned = [
        vm(
            one,
            number,
            going=state == "going",
            annotations={LEAVING: "Offline"} if state == "leaving" else {},
        )
        for number, state in enumerate(states)
    ]
    decided = plan(one, owned, Random(seed), burst=burst)
    assert not (decided.create and decided.remove)
    assert max(decided.create, len(decided.remove)) <= burst
    assert len(owned) + decided.create <= max(replicas, len(owned))
    staying = states.count("there") - len(decided.remove)
    assert staying >= min(replicas, states.count("there"))
