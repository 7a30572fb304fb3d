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


def test_who_does_not_say_wants_one():
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
def test_a_pool_comes_to_its_size(replicas, there, going, create, remove):
    one = pool(replicas=replicas)
    owned = [vm(one, number) for number in range(there)]
    owned += [vm(one, there + number, going=True) for number in range(going)]
    decided = decide(one, owned)
    assert (decided.create, len(decided.remove)) == (create, remove)
    assert all(not each.metadata.deletion_timestamp for each in decided.remove)


def test_one_that_was_chosen_already_is_not_replaced_by_another_choice():
    one = pool(replicas=2, **sorted_by("AscendingOrder"))
    owned = [vm(one, number) for number in range(3)]
    owned.append(vm(one, 3, annotations={LEAVING: "Online"}))
    assert numbers(decide(one, owned).remove) == [0]


@pytest.mark.parametrize("name", ["opportunistic", "unmanaged"])
def test_where_users_choose_the_pool_takes_nobody_away(name):
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
def test_the_order_is_the_policys(policy, expected):
    one = pool(replicas=2, **sorted_by(policy))
    ages = {1: 5, 2: 9, 3: 1, 10: 7}
    owned = [vm(one, number, created=age, ready=number > 2) for number, age in ages.items()]
    assert numbers(decide(one, owned).remove) == expected


def test_a_number_that_cannot_be_read_is_none_before_all_others():
    one = pool(replicas=1, **sorted_by("AscendingOrder"))
    owned = [vm(one, 4), vm(one, name="web-old"), vm(one, 2)]
    [first, _] = decide(one, owned).remove
    assert first.metadata.name == "web-old"


def test_without_a_policy_any_of_them_go():
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


def test_label_selectors_look_at_what_the_vmis_are_made_of():
    selectors = {"labelSelector": {"matchLabels": {"shard": "b"}}}
    one = pool(replicas=0, **sorted_by("AscendingOrder", **selectors))
    owned = [labelled(one, 0, shard="a"), labelled(one, 1, shard="b"), vm(one, 2)]
    owned[2].metadata.labels["shard"] = "b"  # its own labels are not asked
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
def test_node_requirements_look_at_the_vmis_node_selectors(requirement, expected):
    selectors = {"nodeSelectorRequirementMatcher": [{"key": "zone", **requirement}]}
    one = pool(replicas=0, **sorted_by("AscendingOrder", **selectors))
    owned = [on_node(one, number, zone=zone) for number, zone in enumerate(["a", "b", "5"])]
    owned.append(vm(one, 3))
    assert numbers(decide(one, owned).remove) == expected


def test_both_kinds_of_selectors_have_to_be_met():
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


def test_selectors_that_leave_fewer_than_are_too_many_take_those_only():
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
def test_what_is_kept_depends_on_who_took_it_away(fields, removed, deleted_by_users):
    one = pool(**fields)
    assert scale_in_preservation(one) == removed
    assert preservation_of(one, vm(one)) == deleted_by_users


@pytest.mark.parametrize("marked_preservation", ["Disabled", "Offline", "Online"])
def test_what_was_settled_when_it_was_chosen_stays_settled(marked_preservation):
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
