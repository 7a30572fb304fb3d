"""What a replica set decides: in general (Hypothesis), then case by case."""

from hypothesis import given, strategies as st
from tests.unit.controllers.make import make_vmi, replica_set

from corral.api.kinds.kubevirt.replicaset import VirtualMachineInstanceReplicaSet as ReplicaSet
from corral.api.kinds.vmi.replacement import REPLACE_AFTER_READY, REPLACEMENT_REQUESTED
from corral.controllers.replicaset.plan import desired_replicas, new_vmi, plan
from corral.reconcile.objects import is_being_deleted
from corral.reconcile.replicas import is_active, is_ready

PHASES = ("Pending", "Scheduling", "Scheduled", "Running", "Succeeded", "Failed")


@st.composite
def vmis(draw):
    count = draw(st.integers(0, 12))
    return [
        make_vmi(
            name=f"m{number}",
            phase=draw(st.sampled_from(PHASES)),
            ready=draw(st.booleans()),
            going=draw(st.booleans()),
            pod_terminating=draw(st.booleans()),
            node=draw(st.sampled_from(["", "node0"])),
            created=draw(st.integers(0, 3)),
            cost=draw(st.sampled_from([None, "-1", "7", "x"])),
        )
        for number in range(count)
    ]


sets = st.builds(
    replica_set, replicas=st.none() | st.integers(0, 15), paused=st.booleans(), going=st.booleans()
)


@given(sets, vmis(), st.integers(1, 5), st.booleans())
def test_a_plan_brings_the_set_to_the_desired_replicas(one, owned, burst, backing_off):
    decided = plan(one, owned, burst=burst, backing_off=backing_off)
    active = [each for each in owned if is_active(each)]
    assert decided.replicas == len(active)
    assert decided.ready_replicas == len([each for each in active if is_ready(each)])
    after = decided.replicas + decided.create - len(decided.delete)
    if one.spec.paused or is_being_deleted(one):
        assert (decided.create, decided.delete, decided.clean) == (0, (), ())
        return
    assert max(decided.create, len(decided.delete), len(decided.clean)) <= burst
    assert not (decided.create and decided.delete)
    assert {each.metadata.uid for each in decided.delete} <= {each.metadata.uid for each in active}
    assert all(not is_active(each) and not is_being_deleted(each) for each in decided.clean)
    if abs(decided.difference) <= burst and not (backing_off and decided.difference < 0):
        assert after == desired_replicas(one)


def test_replicas_default_to_one():
    assert plan(replica_set(replicas=None), []).create == 1


def test_a_vmi_whose_pod_terminates_is_deleted_and_replaced():
    lost = make_vmi(phase="Running", pod_terminating=True)
    decided = plan(replica_set(replicas=1), [lost])
    assert (decided.create, decided.clean) == (1, (lost,))


def test_a_vmi_in_phase_unknown_is_deleted_and_replaced():
    lost = make_vmi(phase="Unknown")
    decided = plan(replica_set(replicas=1), [lost])
    assert (decided.create, decided.clean, decided.replicas) == (1, (lost,), 0)


def test_a_new_vmi_is_the_template_with_a_name_prefix_without_a_dash():
    one = replica_set(name="testreplicaset", labels={"a": "b"})
    made = new_vmi(one)
    metadata = made["metadata"]
    assert metadata["generateName"] == "testreplicaset"
    assert metadata["labels"] == {"a": "b"}
    assert metadata["ownerReferences"] == [
        {
            "apiVersion": "kubevirt.io/v1",
            "kind": ReplicaSet.kind,
            "name": "testreplicaset",
            "uid": one.metadata.uid,
            "controller": True,
            "blockOwnerDeletion": True,
        }
    ]
    assert "name" not in metadata


def test_the_prefix_is_the_templates_name_before_its_generate_name():
    one = replica_set(name="set", template_name="test")
    assert new_vmi(one)["metadata"]["generateName"] == "test"


# ------------------------------------------------------------------ replaced after ready


def surging(replicas, *members):
    """The plan of a set that replaces after ready; members are (ready, is to leave)."""
    one = replica_set(replicas=replicas)
    one.metadata.annotations = {REPLACE_AFTER_READY: "true"}
    owned = []
    for number, (ready, leaves) in enumerate(members):
        vmi = make_vmi(name=f"m{number}", phase="Running", ready=ready, node="node0")
        if leaves:
            vmi.metadata.annotations = {REPLACEMENT_REQUESTED: "node0"}
        owned.append(vmi)
    return plan(one, owned)


def names(vmis):
    return sorted(vmi.metadata.name for vmi in vmis)


def test_a_marked_vmi_is_replaced_before_it_goes():
    begun = surging(2, (True, False), (True, True))
    assert (begun.create, begun.delete) == (1, ())
    waiting = surging(2, (True, False), (True, True), (False, False))
    assert (waiting.create, waiting.delete) == (0, ())
    done = surging(2, (True, False), (True, True), (True, False))
    assert (done.create, names(done.delete)) == (0, ["m1"])


def test_as_many_marked_vmis_go_as_there_are_ready_ones_to_spare():
    decided = surging(3, (True, True), (True, True), (True, True), (True, False), (False, False))
    assert (decided.create, len(decided.delete)) == (1, 1)


def test_a_marked_vmi_that_is_not_ready_goes_at_once():
    decided = surging(2, (True, False), (False, True))
    assert (decided.create, names(decided.delete)) == (1, ["m1"])


def test_a_set_that_shrinks_lets_marked_vmis_go():
    assert names(surging(1, (True, False), (True, True)).delete) == ["m1"]
    assert names(surging(0, (True, False), (True, True)).delete) == ["m0", "m1"]


def test_without_the_annotation_of_the_set_a_mark_changes_nothing():
    vmi = make_vmi(name="m0", phase="Running", ready=True, node="node0")
    vmi.metadata.annotations = {REPLACEMENT_REQUESTED: "node0"}
    decided = plan(replica_set(replicas=1), [vmi])
    assert (decided.create, decided.delete) == (0, ())
