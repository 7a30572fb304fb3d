from hypothesis import given, strategies as st
from tests.unit.controllers.make import make_vmi
from tests.unit.controllers.replicaset.test_plan import vmis

from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.reconcile.replicas import DELETION_COST, deletion_cost, is_ready, vmis_to_delete


@given(vmis(), st.integers(0, 12))
def test_deleted_vmis_never_cost_more_than_remaining_ones(owned, count):
    chosen = vmis_to_delete(owned, count)
    remaining = [each for each in owned if each not in chosen]
    assert len(chosen) == min(count, len(owned))

    def loss(each: VirtualMachineInstance) -> tuple[bool, bool, int]:
        return bool(each.status.node_name), is_ready(each), deletion_cost(each)

    if chosen and remaining:
        assert max(map(loss, chosen)) <= min(map(loss, remaining))


def test_of_equals_the_newest_is_deleted_first():
    old, new = make_vmi(name="a", created=1), make_vmi(name="b", created=2)
    assert vmis_to_delete([old, new], 1) == (new,)


def test_the_newest_is_deleted_first_whatever_its_name():
    newest, older, oldest = (
        make_vmi(name=name, created=created) for name, created in (("b", 3), ("c", 2), ("a", 1))
    )
    assert vmis_to_delete([older, oldest, newest], 2) == (newest, older)


def test_a_cost_that_is_no_number_counts_as_zero():
    for text in ("", "+1", "1.5", "٣", "9" * 5000, "2147483648", "--1"):
        assert deletion_cost(make_vmi(cost=text)) == 0
    assert deletion_cost(make_vmi(cost="-2147483648")) == -(2**31)
    assert DELETION_COST == "controller.kubernetes.io/pod-deletion-cost"
