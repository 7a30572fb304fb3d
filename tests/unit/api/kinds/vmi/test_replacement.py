"""The annotations by which replicas are replaced after their successor is ready."""

import msgspec
import pytest

from corral.api.kinds.vmi.admission import validate_replica_set
from corral.api.kinds.vmi.replacement import (
    REPLACE_AFTER_READY,
    REPLACEMENT_REQUESTED,
    is_to_be_replaced,
    replaces_after_ready,
)
from corral.api.kinds.vmi.vmi import VirtualMachineInstance

USER = "kubernetes-admin"


def replica_set(value):
    labels = {"app": "test"}
    template = {
        "metadata": {"labels": labels},
        "spec": {"domain": {"resources": {"requests": {"memory": "64M"}}, "devices": {}}},
    }
    return {
        "metadata": {"name": "test", "annotations": {REPLACE_AFTER_READY: value}},
        "spec": {"selector": {"matchLabels": labels}, "template": template},
    }


@pytest.mark.parametrize("value", ["true", "false"])
def test_a_set_may_ask_for_it_or_not(value):
    assert validate_replica_set(replica_set(value), None, USER).causes == []
    assert replaces_after_ready({REPLACE_AFTER_READY: value}) is (value == "true")


def test_another_value_is_refused_by_its_name():
    document = replica_set("yes")
    [cause] = validate_replica_set(document, None, USER).causes
    assert cause.field == "metadata.annotations[corral.dev/replace-after-ready]"
    assert 'Unsupported value: "yes": supported values: "true", "false"' in cause.message
    assert validate_replica_set(document, replica_set("true"), USER).causes
    assert not validate_replica_set(document, document, USER).causes, "it was stored before"


@pytest.mark.parametrize(("marked", "expected"), [("one", True), ("two", False), ("", False)])
def test_a_mark_counts_on_the_node_that_it_names(marked, expected):
    document = {
        "metadata": {"name": "vm", "annotations": {REPLACEMENT_REQUESTED: marked}},
        "spec": {"domain": {"devices": {}}},
        "status": {"nodeName": "one"},
    }
    assert is_to_be_replaced(msgspec.convert(document, VirtualMachineInstance)) is expected
