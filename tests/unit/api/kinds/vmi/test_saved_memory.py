"""Annotations of VMIs and claims about saved memory."""

import msgspec
import pytest
from lightkube.models.core_v1 import PersistentVolumeClaim
from lightkube.models.meta_v1 import ObjectMeta

from corral.api.kinds.vmi.addresses import mac_of
from corral.api.kinds.vmi.saved_memory import (
    IDENTITY,
    SAVED_MACHINE,
    Mark,
    identity,
    mark_annotation,
    mark_of,
    restores_from,
    resume_annotations,
    saves_to,
)
from corral.api.kinds.vmi.vmi import VirtualMachineInstance

MINE = "6a1a24a1-4061-4607-8bf4-a3963d0c5895"
FORMER = "0cc5347f-1b1d-4331-9aa4-03f51f825d3c"


def machine(**annotations: str) -> VirtualMachineInstance:
    interface = {"name": "default", "masquerade": {}}
    document = {
        "metadata": {"name": "vm", "uid": MINE, "annotations": annotations},
        "spec": {"domain": {"devices": {"interfaces": [interface]}}},
    }
    return msgspec.convert(document, VirtualMachineInstance)


def claim(annotations: dict[str, str] | None) -> PersistentVolumeClaim:
    return PersistentVolumeClaim(metadata=ObjectMeta(name="vm-memory", annotations=annotations))


def test_the_annotation_of_saved_memory_round_trips():
    mark = Mark(identity=FORMER, instance="default/vm-0", saved_at="2026-01-01T00:00:00Z", bytes=7)
    assert mark_of(claim(mark_annotation(mark))) == mark


def test_a_withdrawn_annotation_is_removed_by_the_patch():
    assert mark_annotation(None) == {SAVED_MACHINE: None}


DEEP = '{"a":' + "[" * 5000 + "]" * 5000 + "}"


@pytest.mark.parametrize("text", ["", "yes", "[]", '{"bytes": 7}', '{"identity": 7}', DEEP])
def test_an_invalid_annotation_is_ignored(text):
    assert mark_of(claim({SAVED_MACHINE: text})) is None


def test_a_claim_without_annotations_has_no_saved_memory():
    assert mark_of(claim(None)) is None


def test_a_restored_vmi_keeps_its_mac_addresses():
    before = machine()
    before.metadata.uid = FORMER
    after = machine(**resume_annotations("vm-memory", Mark(identity=identity(before))))
    [card] = after.spec.domain.devices.interfaces
    assert restores_from(after) == "vm-memory"
    assert mac_of(after, card) == mac_of(before, card) != mac_of(machine(), card)


@pytest.mark.parametrize("forged", ["", "no uid", "--help", "../../etc", "x" * 36])
def test_an_invalid_uid_is_not_used(forged):
    assert identity(machine(**{IDENTITY: forged})) == MINE


def test_a_vmi_without_annotations_is_neither_saved_nor_restored():
    assert saves_to(machine()) == restores_from(machine()) == ""
