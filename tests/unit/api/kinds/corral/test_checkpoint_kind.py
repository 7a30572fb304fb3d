"""Validation and columns of VirtualMachineCheckpoints."""

import pytest

from corral.api.kinds.corral.checkpoint_kind import CHECKPOINT


def document(**source):
    return {
        "metadata": {"name": "base", "namespace": "lab"},
        "spec": {"source": {"kind": "VirtualMachineInstance", **source}},
    }


def causes(new, old=None):
    return [(each.field, each.reason) for each in CHECKPOINT.validate(new, old, "user").causes]


@pytest.mark.parametrize("source", [{}, {"name": ""}])
def test_a_checkpoint_without_a_source_is_refused(source):
    assert causes(document(**source)) == [("spec.source.name", "FieldValueRequired")]


@pytest.mark.parametrize("name", ["../default/vm", "VM", "a" * 254])
def test_a_name_that_no_vmi_can_have_is_refused(name):
    assert causes(document(name=name)) == [("spec.source.name", "FieldValueInvalid")]


def test_the_spec_cannot_be_changed_but_labels_can():
    old = document(name="vm")
    assert causes(old, old) == []
    assert causes(document(name="other"), old) == [("spec", "FieldValueForbidden")]


def test_columns_show_where_it_is_and_whether_it_is_ready():
    shown = document(name="vm") | {
        "status": {
            "nodeName": "node1",
            "sizeBytes": 5,
            "forks": 2,
            "conditions": [{"type": "Ready", "status": "True"}],
        }
    }
    cells = {each.name: each.cell(shown) for each in CHECKPOINT.columns}
    assert cells | {"Age": None} == {
        "Source": "vm",
        "Node": "node1",
        "Bytes": 5,
        "Ready": "True",
        "Forks": 2,
        "Age": None,
    }
