"""When the memory of one that leaves is saved, and what becomes of it."""

from datetime import UTC, datetime

import pytest
from lightkube.models.core_v1 import PersistentVolumeClaim
from lightkube.models.meta_v1 import ObjectMeta
from tests.unit.controllers.pool.make import machine, pool, vm

from corral.api.kinds.storage.common import SELECTED_NODE
from corral.api.kinds.vmi.saved_memory import RESTORE_FROM, SAVE_TO, Mark, mark_annotation
from corral.controllers.pool.memory_plan import (
    LONGEST_SECONDS,
    Care,
    Fate,
    care,
    claim_for,
    claim_name,
    fate,
    vm_name,
)
from corral.controllers.pool.scale_plan import LEAVING


def claim(*, holds=False, going=False) -> PersistentVolumeClaim:
    told = mark_annotation(Mark(identity="x")) if holds else {}
    gone = datetime(2026, 1, 1, tzinfo=UTC) if going else None
    metadata = ObjectMeta(name="web-0-memory", annotations=told, deletionTimestamp=gone)
    return PersistentVolumeClaim(metadata=metadata)


def saving(one, **fields):
    found = machine(one, **fields)
    found.metadata.annotations = {SAVE_TO: "web-0-memory"}
    return found


ONE = vm(pool())


@pytest.mark.parametrize(
    ("present", "made", "seconds", "expected"),
    [
        (None, None, 0, Care.DONE),
        (machine(ONE, phase="Succeeded"), None, 0, Care.DONE),
        (saving(ONE, phase="Succeeded"), claim(holds=True), 9, Care.DONE),
        (saving(ONE, phase="Succeeded"), claim(), 9, Care.GIVEN_UP),
        (saving(ONE, phase="Failed"), None, 9, Care.GIVEN_UP),
        (machine(ONE, phase="Scheduled"), None, 0, Care.DONE),
        (machine(ONE, going=True), claim(), 0, Care.DONE),
        (saving(ONE, going=True), claim(), 9, Care.GIVEN_UP),
        (machine(ONE), None, 0, Care.CLAIM),
        (machine(ONE, ready=False), None, 0, Care.CLAIM),
        (machine(ONE), claim(), 0, Care.ASK),
        (machine(ONE), claim(going=True), 0, Care.WAIT),
        (saving(ONE), claim(going=True), LONGEST_SECONDS, Care.WAIT),
        (saving(ONE), claim(), 9, Care.WAIT),
        (saving(ONE), claim(holds=True), 9, Care.WAIT),
        (saving(ONE), claim(), LONGEST_SECONDS, Care.GIVEN_UP),
    ],
)
def test_a_memory_is_saved_step_by_step(present, made, seconds, expected):
    assert care(present, made, seconds) is expected


@pytest.mark.parametrize(
    ("holds", "annotations", "restores", "phase", "expected"),
    [
        (True, None, False, None, Fate.KEEP),
        (False, None, False, None, Fate.DROP),
        (False, {LEAVING: "Online"}, False, "Running", Fate.KEEP),
        (True, {LEAVING: "Online"}, False, "Succeeded", Fate.KEEP),
        (True, {}, True, None, Fate.KEEP),
        (True, {}, True, "Running", Fate.KEEP),
        (False, {}, True, "Scheduled", Fate.KEEP),
        (False, {}, True, "Running", Fate.FORGET),
        (False, {}, False, "Running", Fate.DROP),
        (True, {}, False, "Running", Fate.DROP),
    ],
)
def test_what_becomes_of_a_claim(holds, annotations, restores, phase, expected):
    one = None if annotations is None else vm(pool(), annotations=annotations)
    if restores:
        one.spec.template.metadata.annotations = {RESTORE_FROM: "web-0-memory"}
    present = machine(one, phase=phase) if phase else None
    assert fate(pool(), claim(holds=holds), one, present) is expected


def test_nobody_keeps_a_claim_for_one_that_was_taken_out_while_it_was_to_be_saved():
    one = vm(pool(), annotations={LEAVING: "Online"})
    one.metadata.owner_references = []
    assert fate(pool(), claim(), one, machine(one)) is Fate.DROP


def test_a_claim_is_named_after_its_virtual_machine_and_goes_with_the_pool():
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
