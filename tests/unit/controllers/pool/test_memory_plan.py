"""When the memory of one that leaves is saved, and what becomes of it."""

from datetime import UTC, datetime

import pytest
from lightkube.models.core_v1 import PersistentVolumeClaim
from lightkube.models.meta_v1 import ObjectMeta
from tests.unit.controllers.pool.make import make_vmi, pool, vm

from corral.api.kinds.storage.common import SELECTED_NODE
from corral.api.kinds.vmi.saved_memory import RESTORE_FROM, SAVE_TO, Mark, mark_annotation
from corral.controllers.pool.memory_plan import (
    SAVE_TIMEOUT_SECONDS,
    ClaimStep,
    SaveStep,
    claim_for,
    claim_name,
    claim_step,
    save_step,
    vm_name,
)
from corral.controllers.pool.scale_plan import LEAVING


def claim(*, holds=False, going=False) -> PersistentVolumeClaim:
    annotations = mark_annotation(Mark(identity="x")) if holds else {}
    gone = datetime(2026, 1, 1, tzinfo=UTC) if going else None
    metadata = ObjectMeta(name="web-0-memory", annotations=annotations, deletionTimestamp=gone)
    return PersistentVolumeClaim(metadata=metadata)


def saving(one, **fields):
    found = make_vmi(one, **fields)
    found.metadata.annotations = {SAVE_TO: "web-0-memory"}
    return found


ONE = vm(pool())


@pytest.mark.parametrize(
    ("present", "made", "seconds", "expected"),
    [
        (None, None, 0, SaveStep.DONE),
        (make_vmi(ONE, phase="Succeeded"), None, 0, SaveStep.DONE),
        (saving(ONE, phase="Succeeded"), claim(holds=True), 9, SaveStep.DONE),
        (saving(ONE, phase="Succeeded"), claim(), 9, SaveStep.GIVE_UP),
        (saving(ONE, phase="Failed"), None, 9, SaveStep.GIVE_UP),
        (make_vmi(ONE, phase="Scheduled"), None, 0, SaveStep.DONE),
        (make_vmi(ONE, going=True), claim(), 0, SaveStep.DONE),
        (saving(ONE, going=True), claim(), 9, SaveStep.GIVE_UP),
        (make_vmi(ONE), None, 0, SaveStep.CREATE_CLAIM),
        (make_vmi(ONE, ready=False), None, 0, SaveStep.CREATE_CLAIM),
        (make_vmi(ONE), claim(), 0, SaveStep.REQUEST),
        (make_vmi(ONE), claim(going=True), 0, SaveStep.WAIT),
        (saving(ONE), claim(going=True), SAVE_TIMEOUT_SECONDS, SaveStep.WAIT),
        (saving(ONE), claim(), 9, SaveStep.WAIT),
        (saving(ONE), claim(holds=True), 9, SaveStep.WAIT),
        (saving(ONE), claim(), SAVE_TIMEOUT_SECONDS, SaveStep.GIVE_UP),
    ],
)
def test_memory_is_saved_step_by_step(present, made, seconds, expected):
    assert save_step(present, made, seconds) is expected


@pytest.mark.parametrize(
    ("holds", "annotations", "restores", "phase", "expected"),
    [
        (True, None, False, None, ClaimStep.KEEP),
        (False, None, False, None, ClaimStep.DELETE),
        (False, {LEAVING: "Online"}, False, "Running", ClaimStep.KEEP),
        (True, {LEAVING: "Online"}, False, "Succeeded", ClaimStep.KEEP),
        (True, {}, True, None, ClaimStep.KEEP),
        (True, {}, True, "Running", ClaimStep.KEEP),
        (False, {}, True, "Scheduled", ClaimStep.KEEP),
        (False, {}, True, "Running", ClaimStep.UNSET),
        (False, {}, False, "Running", ClaimStep.DELETE),
        (True, {}, False, "Running", ClaimStep.DELETE),
    ],
)
def test_claims_are_kept_created_or_deleted(holds, annotations, restores, phase, expected):
    one = None if annotations is None else vm(pool(), annotations=annotations)
    if restores:
        one.spec.template.metadata.annotations = {RESTORE_FROM: "web-0-memory"}
    present = make_vmi(one, phase=phase) if phase else None
    assert claim_step(pool(), claim(holds=holds), one, present) is expected


def test_the_claim_of_a_vm_detached_before_its_save_is_deleted():
    one = vm(pool(), annotations={LEAVING: "Online"})
    one.metadata.owner_references = []
    assert claim_step(pool(), claim(), one, make_vmi(one)) is ClaimStep.DELETE


def test_a_claim_is_named_after_its_vm_and_owned_by_the_pool():
    one = pool(
        template={"template": {"spec": {"domain": {"memory": {"guest": "1Gi"}, "devices": {}}}}}
    )
    member = vm(one, 3, template={"spec": {"domain": {"memory": {"guest": "1Gi"}, "devices": {}}}})
    document = claim_for(one, member, "node0")
    assert document["metadata"]["name"] == "web-3-memory" == claim_name("web-3")
    assert document["metadata"]["ownerReferences"][0]["uid"] == one.metadata.uid
    assert document["metadata"]["annotations"] == {SELECTED_NODE: "node0"}
    assert document["spec"]["resources"]["requests"] == {"storage": "1408Mi"}
    assert vm_name("web-3-memory") == "web-3"
