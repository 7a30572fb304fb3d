"""How a changed template reaches what is there."""

from random import Random

import pytest
from hypothesis import given, strategies as st
from tests.unit.controllers.pool.make import LABELS, make_vmi, pool, vm

from corral.controllers.pool.availability import is_available, max_unavailable
from corral.controllers.pool.revisions import History, Step, name_of, revision
from corral.controllers.pool.rollout import Rollout, plan
from corral.controllers.pool.scale_plan import LEAVING

GROWN = {
    "template": {"metadata": {"labels": LABELS}, "spec": {"domain": {"memory": {}, "devices": {}}}}
}
DISKS = {"dataVolumeTemplates": [{"metadata": {"name": "d"}, "spec": {"source": {"blank": {}}}}]}
STOPPED = {"runStrategy": "Halted"}
LARGE = {"instancetype": {"name": "large"}}
LIKES = {"preference": {"name": "likes"}}


def history(now, *before) -> History:
    existing = {name_of(each): each.spec.virtual_machine_template for each in (now, *before)}
    return History(now, existing.keys(), existing)


def test_a_revision_holds_the_whole_spec_and_is_the_pools():
    one = pool(generation=4, maxUnavailable=2)
    document = revision(one)
    assert (document["metadata"]["name"], document["revision"]) == ("web-4", 4)
    assert document["metadata"]["ownerReferences"][0]["uid"] == "uid-web"
    assert document["data"]["maxUnavailable"] == 2
    assert document["data"]["virtualMachineTemplate"]["spec"]["runStrategy"] == "Always"


def test_a_virtual_machine_is_outdated_by_its_template_only():
    old = pool(generation=1)
    scaled = pool(generation=2, replicas=9, nameGeneration={"appendIndexToSecretRefs": True})
    changed = pool(generation=3, template=GROWN)
    assert not history(old).is_outdated(vm(old))
    assert not history(scaled, old).is_outdated(vm(old))
    assert history(changed, old).is_outdated(vm(old))
    assert history(scaled).is_outdated(vm(old)), "its revision is gone"
    assert history(old).is_outdated(vm(old, revision=""))


@pytest.mark.parametrize(
    ("template", "label", "existing", "step"),
    [
        (GROWN, "web-2", True, Step.NOTHING),
        (GROWN, "web-1", True, Step.RESTART),
        (GROWN, "", True, Step.RESTART),
        (GROWN, "web-1", False, Step.RESTART),
        (DISKS, "web-1", True, Step.RECREATE),
        (LARGE, "web-1", True, Step.RESTART),
        (LIKES, "web-1", True, Step.RESTART),
        (STOPPED, "web-1", True, Step.LABEL),
    ],
)
def test_what_a_vmi_needs_follows_from_what_changed(template, label, existing, step):
    old, now = pool(generation=1), pool(generation=2, template=template)
    one = vm(now, revision="web-2")
    found = history(now, old) if existing else history(now)
    assert found.step(one, make_vmi(one, revision=label)) is step


def test_nothing_is_done_where_the_virtual_machines_own_revision_is_not_known():
    now = pool(generation=3)
    for label in ("", "web-2"):
        one = vm(now, revision=label)
        assert history(now).step(one, make_vmi(one, revision="web-1")) is Step.NOTHING


@pytest.mark.parametrize(
    ("allowed", "replicas", "most"),
    [
        (None, 7, 7),
        ("100%", 7, 7),
        ("50%", 7, 3),
        ("10%", 7, 1),
        ("1%", 0, 1),
        (2, 7, 2),
        (9, 7, 9),
        (0, 7, 1),
        (None, 0, 1),
    ],
)
def test_how_many_may_be_unavailable(allowed, replicas, most):
    more = {} if allowed is None else {"maxUnavailable": allowed}
    assert max_unavailable(pool(replicas=replicas, **more)) == most


@pytest.mark.parametrize(
    ("fields", "available"),
    [
        ({}, True),
        ({"ready": False}, False),
        ({"phase": "Scheduled"}, False),
        ({"phase": "Succeeded"}, False),
        ({"going": True}, False),
    ],
)
def test_a_vmi_is_available_when_it_runs_is_ready_and_stays(fields, available):
    assert is_available(make_vmi(vm(pool()), **fields)) is available
    assert is_available(None) is False


def scene(count, *, template=GROWN, ready=(), up_to_date=True, **spec):
    """A pool of the second generation, whose machines are of the first."""
    old = pool(generation=1, replicas=count)
    now = pool(generation=2, replicas=count, template=template, **spec)
    label = "web-2" if up_to_date else "web-1"
    owned = [vm(now, number, revision=label) for number in range(count)]
    vmis = {
        one.metadata.name: make_vmi(one, revision="web-1", ready=number in ready)
        for number, one in enumerate(owned)
    }
    return now, owned, vmis, history(now, old)


def decide(now, owned, vmis, found) -> Rollout:
    return plan(now, owned, vmis, found, Random(1))


def names(steps):
    return {one.metadata.name for one, _ in steps}


def test_virtual_machines_come_first_all_at_once():
    decided = decide(*scene(4, up_to_date=False, ready=range(4), maxUnavailable=1))
    assert len(decided.update) == 4
    assert decided.steps == ()


def test_nobody_is_updated_where_users_do_that():
    assert decide(*scene(4, up_to_date=False, updateStrategy={"unmanaged": {}})) == Rollout()
    assert decide(*scene(4, updateStrategy={"unmanaged": {}})) == Rollout()


def test_an_opportunistic_update_stops_at_the_virtual_machines():
    strategy = {"opportunistic": {}}
    assert decide(*scene(2, up_to_date=False, updateStrategy=strategy)).update
    assert decide(*scene(2, ready=range(2), updateStrategy=strategy)) == Rollout()


@pytest.mark.parametrize("strategy", [None, {}, {"proactive": {}}])
def test_a_proactive_update_is_what_is_done_unless_said(strategy):
    more = {} if strategy is None else {"updateStrategy": strategy}
    assert len(decide(*scene(3, ready=range(3), **more)).steps) == 3


def test_those_that_cannot_serve_are_not_waited_for_and_use_up_what_is_allowed():
    decided = decide(*scene(5, ready={0, 1, 2}, maxUnavailable=1))
    assert names(decided.steps) == {"web-3", "web-4"}


def test_one_at_a_time_where_one_may_be_unavailable():
    now, owned, vmis, found = scene(4, ready=range(4), maxUnavailable=1)
    [(first, step)] = decide(now, owned, vmis, found).steps
    assert step is Step.RESTART
    vmis[first.metadata.name] = make_vmi(first, revision="web-1", going=True)
    assert decide(now, owned, vmis, found).steps == ()
    del vmis[first.metadata.name]
    assert decide(now, owned, vmis, found).steps == ()
    vmis[first.metadata.name] = make_vmi(first, ready=False)
    assert decide(now, owned, vmis, found).steps == ()
    vmis[first.metadata.name] = make_vmi(first)
    [(second, _)] = decide(now, owned, vmis, found).steps
    assert second is not first


def test_a_label_disturbs_nobody_and_waits_for_nobody():
    now, owned, vmis, found = scene(4, template=STOPPED, ready=range(4), maxUnavailable=1)
    assert [step for _, step in decide(now, owned, vmis, found).steps] == [Step.LABEL] * 4


def test_who_has_no_vmi_or_leaves_is_left_alone():
    now, owned, vmis, found = scene(4, ready=range(4))
    del vmis["web-0"]
    owned[1].metadata.annotations[LEAVING] = "Offline"
    owned[2].metadata.deletion_timestamp = "2026-01-01T00:00:00Z"
    assert names(decide(now, owned, vmis, found).steps) == {"web-3"}


def test_selectors_choose_who_is_updated_at_all():
    selectors = {"labelSelector": {"matchLabels": {"shard": "b"}}}
    strategy = {"proactive": {"selectionPolicy": {"selectors": selectors}}}
    for up_to_date in (True, False):
        now, owned, vmis, found = scene(
            3, up_to_date=up_to_date, ready=range(3), updateStrategy=strategy
        )
        owned[1].spec.template.metadata.labels["shard"] = "b"
        decided = decide(now, owned, vmis, found)
        chosen = {one.metadata.name for one in decided.update} | names(decided.steps)
        assert chosen == {"web-1"}


def test_the_order_is_that_of_the_policy():
    strategy = {"proactive": {"selectionPolicy": {"sortPolicy": "DescendingOrder"}}}
    decided = decide(*scene(3, ready=range(3), maxUnavailable=2, updateStrategy=strategy))
    assert [one.metadata.name for one, _ in decided.steps] == ["web-2", "web-1"]


@given(
    st.lists(st.tuples(st.booleans(), st.booleans(), st.booleans()), min_size=1, max_size=10),
    st.integers(1, 10),
    st.integers(0, 99),
)
def test_never_more_become_unavailable_than_may_be(states, allowed, seed):
    now, owned, vmis, found = scene(len(states), ready=range(len(states)), maxUnavailable=allowed)
    for one, (there, ready, new) in zip(owned, states, strict=True):
        label = "web-2" if new else "web-1"
        vmis[one.metadata.name] = make_vmi(one, revision=label, ready=ready)
        if not there:
            del vmis[one.metadata.name]
    decided = plan(now, owned, vmis, found, Random(seed))
    before = {name for name, each in vmis.items() if is_available(each)}
    lost = before & names(decided.steps)
    unavailable = len(owned) - len(before)
    assert len(lost) <= max(0, allowed - unavailable)
    assert len(lost) == min(
        max(0, allowed - unavailable),
        sum(there and ready and not new for there, ready, new in states),
    )


def test_no_more_is_done_in_one_go_than_may_be():
    now, owned, vmis, found = scene(6, ready=range(6))
    assert len(plan(now, owned, vmis, found, Random(1), burst=4).steps) == 4
    now, owned, vmis, found = scene(6, up_to_date=False)
    assert len(plan(now, owned, vmis, found, Random(1), burst=4).update) == 4


def test_revisions_that_nothing_was_made_from_are_unused():
    found = History(pool(generation=3), {"web-1", "web-2", "web-3"}, {})
    assert set(found.unused({"web-2", ""})) == {"web-1", "web-3"}
    assert found.has_current
    assert not History(pool(generation=3), (), {}).has_current
    assert name_of(pool(generation=3)) == "web-3"
