"""Which taints a node's conditions give it."""

import msgspec
from lightkube.models.core_v1 import Node

from corral.cluster.node_lifecycle import desired_taints

DISK = "node.kubernetes.io/disk-pressure"
OTHER = {"key": "mine", "effect": "NoExecute", "value": "a"}
NOW = "2026-01-01T00:00:00Z"


def node(*taints, **pressures):
    conditions = [{"type": name, "status": status} for name, status in pressures.items()]
    document = {"spec": {"taints": list(taints)}, "status": {"conditions": conditions}}
    return msgspec.convert({"metadata": {"name": "a"}, **document}, Node)


def test_pressure_adds_a_taint():
    given = desired_taints(node(OTHER, DiskPressure="True", MemoryPressure="False"), NOW)
    assert given == [OTHER, {"key": DISK, "effect": "NoSchedule", "timeAdded": NOW}]


def test_the_end_of_pressure_removes_the_taint():
    taint = {"key": DISK, "effect": "NoSchedule"}
    assert desired_taints(node(taint, OTHER, DiskPressure="False"), NOW) == [OTHER]


def test_a_node_with_correct_taints_is_not_written():
    taint = {"key": DISK, "effect": "NoSchedule"}
    assert desired_taints(node(taint, OTHER, DiskPressure="True"), NOW) is None
    assert desired_taints(node(OTHER), NOW) is None
