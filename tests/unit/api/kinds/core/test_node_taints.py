"""Taints that follow from the conditions of a node."""

import msgspec
import pytest
from lightkube.models.core_v1 import Node

from corral.api.kinds.core.node_taints import NOT_READY, UNREACHABLE, condition_taints


def node(**statuses):
    conditions = [{"type": name, "status": status} for name, status in statuses.items()]
    return msgspec.convert({"status": {"conditions": conditions}}, Node)


@pytest.mark.parametrize(
    ("status", "key"), [("True", None), ("False", NOT_READY), ("Unknown", UNREACHABLE)]
)
def test_an_unready_node_has_no_schedule_and_no_execute_taints(status, key):
    found = [(each.key, each.effect) for each in condition_taints(node(Ready=status))]
    assert found == ([(key, "NoSchedule"), (key, "NoExecute")] if key else [])


def test_pressure_is_a_no_schedule_taint():
    found = [each.effect for each in condition_taints(node(Ready="True", DiskPressure="True"))]
    assert found == ["NoSchedule"]
