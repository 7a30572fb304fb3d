"""The output of ``corral status``."""

import msgspec
import pytest
from lightkube.models.core_v1 import Node

from corral.api.kinds.vmi.launcher import NODE_LAUNCHER, launcher
from corral.api.kinds.vmi.status import Status
from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.api.object import Condition
from corral.api.request import Response
from corral.cli.manager.node_summary import (
    machine_lines,
    node_line,
    node_lines,
    node_problems,
    phases_of,
    waiting,
)
from corral.cli.manager.status import _faults
from corral.node.status.node_status import MISSING, RETIRED

READY = [{"type": "Ready", "status": "True"}]
NODE = msgspec.convert({"metadata": {"name": "a"}, "status": {"conditions": READY}}, Node)


def machine(phase, node):
    return VirtualMachineInstance(spec=None, status=Status(phase=phase, node_name=node))


def test_outdated_machines_are_counted():
    annotations = {NODE_LAUNCHER: launcher("QEMU 8")}
    node = msgspec.convert({"metadata": {"name": "a", "annotations": annotations}}, Node)
    old, new = machine("Running", "a"), machine("Running", "a")
    old.status.launcher_container_image_version = launcher("QEMU 7")
    new.status.launcher_container_image_version = launcher("QEMU 8")
    first, *rest = machine_lines([node], [old, new])
    assert first.split(maxsplit=1) == ["machines", "2 Running"]
    assert len(rest) == 1
    assert " ".join(rest[0].split()) == (
        "outdated 1 machine runs in an outdated QEMU: corral upgrade machines --dry-run says why"
    )
    assert len(list(machine_lines([node], [new]))) == 1


def test_a_host_without_a_node_is_a_problem():
    (wrong,) = node_problems([], "")
    assert wrong.startswith("no node: ")


def test_a_node_under_pressure_is_a_problem():
    conditions = [*READY, {"type": "DiskPressure", "status": "True"}]
    short = msgspec.convert({"metadata": {"name": "a"}, "status": {"conditions": conditions}}, Node)
    assert "a: ready, DiskPressure; " in node_line(short)
    (wrong,) = node_problems([short], "")
    assert wrong.startswith("node a has DiskPressure, and starts no machine until ")
    assert "--eviction-pressure-transition-period" in wrong


def test_a_node_that_can_start_no_machine_is_a_problem():
    metadata = {"name": "a", "annotations": {MISSING: "qemu is not installed: get it"}}
    bare = msgspec.convert({"metadata": metadata, "status": {"conditions": READY}}, Node)
    assert node_problems([bare], "") == ["node a starts no machine: qemu is not installed: get it"]


@pytest.mark.parametrize("condition", ["SharedStorage", "ClockSynchronized"])
def test_a_false_condition_of_a_node_is_a_problem(condition):
    false = {"type": condition, "status": "False", "message": "corral cannot use /mnt: gone"}
    document = {"metadata": {"name": "a"}, "status": {"conditions": [*READY, false]}}
    node = msgspec.convert(document, Node)
    assert node_problems([node], "") == ["node a cannot use /mnt: gone"]


def test_the_memory_of_forks_is_a_question_where_there_are_checkpoints_or_overcommit():
    def lines(**annotations):
        found = {f"corral.dev/{name}": value for name, value in annotations.items()}
        status = {"conditions": READY, "allocatable": {"memory": "19922944Ki"}}
        metadata = {"name": "a", "annotations": found}
        node = msgspec.convert({"metadata": metadata, "status": status}, Node)
        return "\n".join(node_lines([node]))

    assert "memory " not in lines()
    forks = lines(checkpoints="1, 50 MiB on disk")
    assert "1, 50 MiB on disk" in forks
    assert "19.0 GiB for machines; each fork counts as if it shared none" in forks
    assert "19.0 GiB for machines, 150 % of what there is" in lines(overcommit="150")


def test_a_retired_node_has_no_size():
    retired = msgspec.convert(
        {
            "metadata": {"name": "old", "annotations": {RETIRED: "true"}},
            "status": {"capacity": {"cpu": "2"}, "conditions": READY},
        },
        Node,
    )
    assert "old: ready, takes no machines, goes with its last one" in node_line(retired)
    assert "cpus" not in node_line(retired)


def test_machines_of_missing_nodes_do_not_count_as_running():
    machines = [machine("Running", "a"), machine("Running", "gone"), machine("Running", "a")]
    assert phases_of(machines, {"a"}) == "2 Running, 1 of nodes that are gone"
    assert phases_of([machine("", "")], {"a"}) == "1 Pending"
    assert phases_of([], {"a"}) == "none"


def test_unscheduled_machines_wait_with_their_reason():
    full, running = machine("Scheduling", ""), machine("Running", "a")
    output = "0/1 nodes are available: 1 Insufficient cpu."
    full.status.conditions.append(Condition(type="PodScheduled", status="False", message=output))
    running.status.conditions.append(Condition(type="PodScheduled", status="True"))
    assert waiting([full, running, full]) == [f"2 have no node: {output}"]
    assert waiting([full]) == [f"1 has no node: {output}"]
    assert not waiting([running])


def test_machines_without_an_image_wait_with_their_reason():
    pulling, running = machine("Scheduling", "a"), machine("Running", "a")
    output = 'container image "lab:1" is not there'
    for each in (pulling, running):
        each.status.conditions.append(
            Condition(type="Synchronized", status="False", reason="ErrImagePull", message=output)
        )
    assert waiting([pulling, running]) == [f"1 has no start: {output}"]


def test_an_unwritable_audit_log_is_a_problem():
    full = Response(status=500, body=b"internal server error: x is full\n")
    assert node_problems([NODE], _faults({"/readyz/audit": full})) == [
        "audit log: x is full. Its entries wait in memory"
    ]
    for fine in (Response(status=404, body=b"404 page not found\n"), Response(body=b"ok")):
        assert not node_problems([NODE], _faults({"/readyz/audit": fine}))


def test_damaged_objects_are_a_problem():
    output = {
        "/readyz/objects": Response(status=500, body=b'internal server error: x "y" is lost\n')
    }
    (wrong,) = node_problems([NODE], _faults(output))
    assert wrong.startswith('damaged on disk: x "y" is lost. corral restore --damaged')
