"""How a changed template reaches what is there."""

from random import Random

import pytest
from hypothesis import given, strategies as st
from tests.unit.controllers.pool.make import LABELS, make_vmi, pool, vm

from corral.api.object import Condition
from corral.controllers.pool.availability import is_available, max_unavailable
from corral.controllers.pool.revisions import History, Step, name_of, revision
from corral.controllers.pool.rollout import Rollout, plan
from corral.controllers.pool.scale_plan import LEAVING

GROWN = {
    "template": {
        "metadata": {"labels": LABELS},
        "spec": {"domain": {"cpu": {"cores": 2}, "devices": {}}},
    }
}
SOCKETS = {
    "template": {
        "metadata": {"labels": LABELS},
        "spec": {"domain": {"cpu": {"sockets": 2}, "devices": {}}},
    }
}
DISKS = {"dataVolumeTemplates": [{"metadata": {"name": "d"}, "spec": {"source": {"blank": {}}}}]}
STOPPED = {"runStrategy": "Halted"}
LARGE = {"instancetype": {"name": "large"}}
LIKES = {"preference": {"name": "likes"}}


def history(now, *before) -> History:
    existing = {name_of(each): each.spec.virtual_machine_template for each in (now, *before)}
    return History(now, existing.keys(), existing)


def test_a_revision_has_the_whole_spec_and_is_owned_by_the_pool():
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
        (LIKES, "web-1", True, Step.RESTART),
        (STOPPED, "web-1", True, Step.LABEL),
    ],
)
def test_the_required_update_of_a_vmi_depends_on_the_change(template, label, existing, step):
    old, now = pool(generation=1), pool(generation=2, template=template)
    one = vm(now, revision="web-2")
    found = history(now, old) if existing else history(now)
    assert found.step(one, make_vmi(one, revision=label)) is step


@pytest.mark.parametrize("template", [SOCKETS, LARGE])
@pytest.mark.parametrize(
    ("condition", "generation", "growing", "step"),
    [
        ("", "1", False, Step.NOTHING),
        ("RestartRequired", "1", False, Step.RESTART),
        ("", "2", True, Step.NOTHING),
        ("", "2", False, Step.LABEL),
    ],
)
def test_what_can_be_plugged_in_is_left_to_the_vm_controller(
    template, condition, generation, growing, step
):
    old, now = pool(generation=1), pool(generation=2, template=template)
    conditions = [{"type": condition, "status": "True"}] if condition else []
    one = vm(now, revision="web-2", status={"conditions": conditions})
    one.metadata.generation = 2
    vmi = make_vmi(one, revision="web-1")
    vmi.metadata.annotations["kubevirt.io/vm-generation"] = generation
    if growing:
        vmi.status.conditions.append(Condition(type="HotVCPUChange", status="True"))
    assert history(now, old).step(one, vmi) is step


def test_a_vm_with_an_unknown_revision_is_not_updated():
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
def test_max_unavailable_is_a_number_or_a_percentage(allowed, replicas, most):
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


def test_all_vms_are_updated_before_their_vmis():
    decided = decide(*scene(4, up_to_date=False, ready=range(4), maxUnavailable=1))
    assert len(decided.update) == 4
    assert decided.steps == ()


def test_an_unmanaged_update_changes_nothing():
    assert decide(*scene(4, up_to_date=False, updateStrategy={"unmanaged": {}})) == Rollout()
    assert decide(*scene(4, updateStrategy={"unmanaged": {}})) == Rollout()


def test_an_opportunistic_update_changes_vms_only():
    strategy = {"opportunistic": {}}
    assert decide(*scene(2, up_to_date=False, updateStrategy=strategy)).update
    assert decide(*scene(2, ready=range(2), updateStrategy=strategy)) == Rollout()


@pytest.mark.parametrize("strategy", [None, {}, {"proactive": {}}])
def test_updates_are_proactive_by_default(strategy):
    more = {} if strategy is None else {"updateStrategy": strategy}
    assert len(decide(*scene(3, ready=range(3), **more)).steps) == 3


def test_unavailable_vmis_are_updated_first_and_count_as_unavailable():
    decided = decide(*scene(5, ready={0, 1, 2}, maxUnavailable=1))
    assert names(decided.steps) == {"web-3", "web-4"}


def test_max_unavailable_of_one_updates_one_vmi_at_a_time():
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


def test_changed_labels_are_patched_without_a_restart():
    now, owned, vmis, found = scene(4, template=STOPPED, ready=range(4), maxUnavailable=1)
    assert [step for _, step in decide(now, owned, vmis, found).steps] == [Step.LABEL] * 4


def test_vms_without_a_vmi_and_terminating_ones_are_left_alone():
    now, owned, vmis, found = scene(4, ready=range(4))
    del vmis["web-0"]
    owned[1].metadata.annotations[LEAVING] = "Offline"
    owned[2].metadata.deletion_timestamp = "2026-01-01T00:00:00Z"
    assert names(decide(now, owned, vmis, found).steps) == {"web-3"}


def test_only_vms_that_the_selectors_match_are_updated():
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


def test_updates_follow_the_order_of_the_policy():
    strategy = {"proactive": {"selectionPolicy": {"sortPolicy": "DescendingOrder"}}}
    decided = decide(*scene(3, ready=range(3), maxUnavailable=2, updateStrategy=strategy))
    assert [one.metadata.name for one, _ in decided.steps] == ["web-2", "web-1"]


@given(
    st.lists(st.tuples(st.booleans(), st.booleans(), st.booleans()), min_size=1, max_size=10),
    st.integers(1, 10),
    st.integers(0, 99),
)
def test_an_update_never_exceeds_max_unavailable(states, allowed, seed):
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


def test_one_sync_updates_a_limited_number_of_vms():
    now, owned, vmis, found = scene(6, ready=range(6))
    assert len(plan(now, owned, vmis, found, Random(1), burst=4).steps) == 4
    now, owned, vmis, found = scene(6, up_to_date=False)
    assert len(plan(now, owned, vmis, found, Random(1), burst=4).update) == 4


def test_revisions_without_vms_are_unused():
    found = History(pool(generation=3), {"web-1", "web-2", "web-3"}, {})
    assert set(found.unused({"web-2", ""})) == {"web-1", "web-3"}
    assert found.has_current
    assert not History(pool(generation=3), (), {}).has_current
    assert name_of(pool(generation=3)) == "web-3"
