"""Tests of how ``corral status`` says what it has learned."""

import msgspec
from lightkube.models.core_v1 import Node

from corral.api.kinds.vmi.status import Status
from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.api.object import Condition
from corral.api.request import Response
from corral.cli.manager.node_summary import node_line, node_problems, phases_of, waiting
from corral.cli.manager.status import _faults
from corral.node.status.node_status import MISSING, RETIRED

READY = [{"type": "Ready", "status": "True"}]
NODE = msgspec.convert({"metadata": {"name": "a"}, "status": {"conditions": READY}}, Node)


def machine(phase, node):
    return VirtualMachineInstance(spec=None, status=Status(phase=phase, node_name=node))


def test_a_host_without_a_node_is_wrong():
    (wrong,) = node_problems([], "")
    assert wrong.startswith("no node: ")


def test_a_node_under_pressure_says_so():
    conditions = [*READY, {"type": "DiskPressure", "status": "True"}]
    short = msgspec.convert({"metadata": {"name": "a"}, "status": {"conditions": conditions}}, Node)
    assert "a: ready, DiskPressure; " in node_line(short)
    (wrong,) = node_problems([short], "")
    assert wrong.startswith("node a has DiskPressure, and starts no machine until ")
    assert "--eviction-pressure-transition-period" in wrong


def test_a_node_that_can_start_no_machine_is_wrong():
    metadata = {"name": "a", "annotations": {MISSING: "qemu is not installed: get it"}}
    bare = msgspec.convert({"metadata": metadata, "status": {"conditions": READY}}, Node)
    assert node_problems([bare], "") == ["node a starts no machine: qemu is not installed: get it"]


def test_a_node_that_has_lost_the_shared_directory_is_wrong():
    lost = {"type": "SharedStorage", "status": "False", "message": "corral cannot use /mnt: gone"}
    document = {"metadata": {"name": "a"}, "status": {"conditions": [*READY, lost]}}
    node = msgspec.convert(document, Node)
    assert node_problems([node], "") == ["node a cannot use /mnt: gone"]


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


def test_machines_of_nodes_that_are_not_there_do_not_count_as_running():
    machines = [machine("Running", "a"), machine("Running", "gone"), machine("Running", "a")]
    assert phases_of(machines, {"a"}) == "2 Running, 1 of nodes that are gone"
    assert phases_of([machine("", "")], {"a"}) == "1 Pending"
    assert phases_of([], {"a"}) == "none"


def test_machines_without_a_node_wait_and_it_says_why():
    full, running = machine("Scheduling", ""), machine("Running", "a")
    said = "0/1 nodes are available: 1 Insufficient cpu."
    full.status.conditions.append(Condition(type="PodScheduled", status="False", message=said))
    running.status.conditions.append(Condition(type="PodScheduled", status="True"))
    assert waiting([full, running, full]) == [f"2 have no node: {said}"]
    assert waiting([full]) == [f"1 has no node: {said}"]
    assert not waiting([running])


def test_machines_without_an_image_wait_and_it_says_why():
    pulling, running = machine("Scheduling", "a"), machine("Running", "a")
    said = 'container image "lab:1" is not there'
    for each in (pulling, running):
        each.status.conditions.append(
            Condition(type="Synchronized", status="False", reason="ErrImagePull", message=said)
        )
    assert waiting([pulling, running]) == [f"1 has no start: {said}"]


def test_an_audit_log_that_cannot_be_written_is_wrong():
    full = Response(status=500, body=b"internal server error: x is full\n")
    assert node_problems([NODE], _faults({"/readyz/audit": full})) == [
        "audit log: x is full. Its entries wait in memory"
    ]
    for fine in (Response(status=404, body=b"404 page not found\n"), Response(body=b"ok")):
        assert not node_problems([NODE], _faults({"/readyz/audit": fine}))


def test_damaged_objects_are_wrong():
    said = {"/readyz/objects": Response(status=500, body=b'internal server error: x "y" is lost\n')}
    (wrong,) = node_problems([NODE], _faults(said))
    assert wrong.startswith('damaged on disk: x "y" is lost. corral restore --damaged')
