"""The pod of a VMI is resized before its machine is."""

from datetime import UTC, datetime

import msgspec
import pytest
from lightkube.models.core_v1 import Node, Pod

from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.controllers.vmi.resize import (
    change_of,
    clear_failures,
    granted,
    has_no_room,
    lacking,
    refused,
    releasable,
    resized,
    without_release,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)
MORE = {"requests": {"cpu": "200m", "memory": "2Gi"}}


def vmi(sockets=2, guest="2Gi", **status):
    document = {
        "metadata": {"name": "vm", "resourceVersion": "7"},
        "spec": {
            "domain": {
                "cpu": {"sockets": sockets, "maxSockets": 4},
                "memory": {"guest": guest, "maxGuest": "4Gi"},
                "devices": {},
            }
        },
        "status": {
            "phase": "Running",
            "nodeName": "one",
            "currentCPUTopology": {"sockets": 1, "cores": 1, "threads": 1},
            "memory": dict.fromkeys(("guestAtBoot", "guestCurrent", "guestRequested"), "1Gi"),
            **status,
        },
    }
    return msgspec.convert(document, VirtualMachineInstance)


def pod(name="vm", node="one", **resources):
    compute = {"name": "compute", "resources": resources}
    document = {
        "metadata": {"name": name},
        "spec": {"nodeName": node, "containers": [{"name": "sidecar"}, compute]},
    }
    return msgspec.convert(document, Pod)


def node(**allocatable):
    return msgspec.convert(
        {"metadata": {"name": "one"}, "status": {"allocatable": allocatable}}, Node
    )


def conditions(patch):
    return {each["type"]: each["status"] for each in patch["status"]["conditions"]}


def test_sockets_and_memory_that_the_machine_lacks_are_a_change():
    assert change_of(vmi()).conditions == ["HotVCPUChange", "HotMemoryChange"]
    assert change_of(vmi(guest="1Gi")).conditions == ["HotVCPUChange"]
    assert not change_of(vmi(sockets=1, guest="1Gi"))
    growing = [{"type": "HotVCPUChange", "status": "True"}]
    assert not change_of(vmi(guest="1Gi", conditions=growing)), "its node plugs them in"


@pytest.mark.parametrize(
    "status",
    [
        {"phase": "Scheduled"},
        {"migrationState": {"sourceNode": "one", "completed": False}},
    ],
)
def test_nothing_is_changed_before_the_vmi_runs_or_while_it_migrates(status):
    assert not change_of(vmi(**status))


def test_the_pod_requests_more_and_keeps_limits_of_others():
    asks = pod(requests={"cpu": "100m", "memory": "1Gi"}, limits={"cpu": "3"})
    test, add = resized(asks, MORE)
    assert (test["path"], test["value"]) == ("/spec/containers/1/name", "compute")
    assert add["path"] == "/spec/containers/1/resources"
    assert add["value"]["requests"] == MORE["requests"]
    has = pod(requests={"cpu": "0.2", "memory": "2048Mi"}, limits={"cpu": "3"})
    assert resized(has, MORE) is None


def test_what_the_node_lacks_is_named():
    asks = pod(requests={"cpu": "100m", "memory": "1Gi"})
    others = [asks, pod("other", requests={"memory": "2Gi"}), pod("far", node="two", requests={})]
    assert lacking(asks, MORE, node(cpu="1", memory="4Gi"), others, "one") == []
    assert lacking(asks, MORE, node(cpu="1", memory="3Gi"), others, "one") == ["memory"]
    assert lacking(asks, MORE, node(cpu="150m", memory="4Gi"), others, "one") == ["cpu"]


def test_a_granted_change_is_reported_to_the_node():
    stuck = [{"type": "MigrationRequired", "status": "True"}]
    changed = vmi(conditions=stuck)
    patch = granted(changed, change_of(changed), NOW)
    assert conditions(patch) == {"HotVCPUChange": "True", "HotMemoryChange": "True"}
    assert patch["status"]["memory"] == {"guestRequested": "2Gi"}
    assert patch["metadata"] == {"resourceVersion": "7"}
    sockets = vmi(guest="1Gi")
    assert "memory" not in granted(sockets, change_of(sockets), NOW)["status"]


def test_a_refused_change_says_why_once():
    changed = vmi(guest="1Gi")
    patch = refused(changed, change_of(changed), "exceeded quota", NOW)
    [condition] = patch["status"]["conditions"]
    assert (condition["status"], condition["message"]) == ("False", "exceeded quota")
    again = vmi(guest="1Gi", conditions=[condition])
    assert refused(again, change_of(again), "exceeded quota", NOW) is None


def test_a_node_without_room_requires_a_migration():
    changed = vmi()
    patch = has_no_room(changed, ["memory", "cpu"], NOW)
    [condition] = patch["status"]["conditions"]
    assert condition["type"] == "MigrationRequired"
    assert condition["message"] == "node one has not enough cpu and memory left for the changed VMI"
    assert has_no_room(vmi(conditions=[condition]), ["cpu", "memory"], NOW) is None


LARGE = {"requests": {"memory": "4Gi"}, "limits": {"memory": "4Gi"}}
LESS = {"requests": {"memory": "2Gi"}, "limits": {"memory": "2Gi"}}


def shrunk(current, **status):
    sizes = {"guestAtBoot": "1Gi", "guestCurrent": current, "guestRequested": "2Gi"}
    return vmi(sockets=1, memory=sizes, **status)


def test_a_pod_keeps_memory_that_its_guest_has_not_released():
    """Else the limit would end the machine."""
    assert without_release(shrunk("4Gi"), pod(**LARGE), LESS) == LARGE
    assert without_release(shrunk("2Gi"), pod(**LARGE), LESS) == LESS
    assert releasable(shrunk("4Gi"), pod(**LARGE), LESS) is None


def test_memory_that_a_guest_has_released_is_not_requested_any_more():
    more = {"requests": {"cpu": "9", **LESS["requests"]}, "limits": LESS["limits"]}
    assert releasable(shrunk("2Gi"), pod(**LARGE), more) == LESS
    assert releasable(shrunk("2Gi"), pod(**LESS), more) is None
    assert releasable(shrunk("2Gi", phase="Scheduled"), pod(**LARGE), more) is None


def test_a_change_that_was_taken_back_requires_no_migration():
    stuck = [
        {"type": "MigrationRequired", "status": "True"},
        {"type": "HotMemoryChange", "status": "False"},
        {"type": "HotVCPUChange", "status": "True"},
    ]
    patch = clear_failures(vmi(sockets=1, guest="1Gi", conditions=stuck))
    assert conditions(patch) == {"HotVCPUChange": "True"}
    assert clear_failures(vmi(sockets=1, guest="1Gi", conditions=stuck[2:])) is None
    assert clear_failures(vmi(phase="Failed", conditions=stuck)) is None
