"""Which changes of a VirtualMachine reach its VMI while that runs, and how."""

import copy

import msgspec
import pytest

from corral.api.kinds.vmi.vmi import Spec, VirtualMachineInstance
from corral.controllers.vm.live_update import (
    ABOVE_MAXIMUM,
    BELOW_BOOT,
    NO_MEMORY_HOTPLUG,
    plan,
)
from corral.controllers.vm.restart import FEWER_SOCKETS, MORE_SOCKETS, TEMPLATE

STARTED = {
    "domain": {
        "cpu": {"sockets": 2, "cores": 1, "threads": 1},
        "memory": {"guest": "1Gi"},
        "devices": {},
    }
}


def vmi(spec, **status):
    document = {
        "metadata": {"name": "vm"},
        "spec": spec,
        "status": {"phase": "Running", "memory": {"guestAtBoot": "1Gi"}, **status},
    }
    return msgspec.convert(document, VirtualMachineInstance)


def with_room(spec):
    roomy = copy.deepcopy(spec)
    roomy["domain"]["cpu"]["maxSockets"] = 4
    roomy["domain"]["memory"]["maxGuest"] = "4Gi"
    return roomy


def decide(change, *, present=None, **status):
    desired = copy.deepcopy(STARTED)
    change(desired)
    found = vmi(present or with_room(STARTED), **status)
    return plan(msgspec.convert(STARTED, Spec), msgspec.convert(desired, Spec), found, cpu_ratio=10)


def test_further_sockets_wait_until_those_before_are_plugged_in():
    """Its node plugs in all that the spec has, and its pod has only what was granted."""
    growing = [{"type": "HotVCPUChange", "status": "True"}]
    assert decide(sockets(3), conditions=growing).deferred
    refused = [{"type": "HotVCPUChange", "status": "False"}]
    assert decide(sockets(3), conditions=refused).change is not None


def sockets(count):
    return lambda spec: spec["domain"]["cpu"].update(sockets=count)


def guest(size):
    return lambda spec: spec["domain"]["memory"].update(guest=size)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (sockets(5), MORE_SOCKETS),
        (sockets(1), FEWER_SOCKETS),
        (guest("512Mi"), BELOW_BOOT),
        (guest("8Gi"), ABOVE_MAXIMUM),
        (guest("1537Mi"), "memory hotplug not supported, Guest memory must be 2Mi aligned"),
        (lambda spec: spec["domain"]["cpu"].update(cores=2), TEMPLATE),
        (lambda spec: (sockets(3)(spec), spec.update(hostname="other")), TEMPLATE),
    ],
)
def test_changes_that_wait_for_a_restart(change, reason):
    assert decide(change).restart == reason


def test_a_vmi_that_was_started_without_room_needs_a_restart():
    assert decide(sockets(3), present=STARTED).restart == MORE_SOCKETS
    assert decide(guest("2Gi"), present=STARTED).restart == NO_MEMORY_HOTPLUG


def test_sockets_memory_and_placement_are_changed_while_the_vmi_runs():
    def change(spec):
        sockets(3)(spec)
        guest("2Gi")(spec)
        spec["nodeSelector"] = {"disk": "fast"}

    assert decide(change).change == {
        "domain": {"cpu": {"sockets": 3}, "memory": {"guest": "2Gi"}},
        "nodeSelector": {"disk": "fast"},
    }


def test_a_placement_that_the_template_has_lost_is_removed():
    present = with_room(STARTED)
    present["nodeSelector"] = {"disk": "fast", "a": "b"}
    change = decide(lambda spec: spec.update(nodeSelector={"a": "b"}), present=present).change
    assert change == {"nodeSelector": {"disk": None}}


def test_an_unchanged_spec_changes_nothing():
    assert decide(lambda spec: spec) == decide(guest("1024Mi"))
    assert decide(lambda spec: spec).change is None


def test_requests_and_limits_grow_with_sockets_and_memory():
    present = with_room(STARTED)
    present["domain"]["resources"] = {
        "requests": {"cpu": "200m", "memory": "1Gi"},
        "limits": {"memory": "2Gi"},
    }
    started = copy.deepcopy(STARTED)
    started["domain"]["resources"] = present["domain"]["resources"]
    desired = copy.deepcopy(started)
    sockets(4)(desired)
    guest("2Gi")(desired)
    found = plan(
        msgspec.convert(started, Spec),
        msgspec.convert(desired, Spec),
        vmi(present),
        cpu_ratio=10,
    )
    assert found.change["domain"]["resources"] == {
        "requests": {"cpu": "400m", "memory": "2Gi"},
        "limits": {"memory": "3Gi"},
    }


@pytest.mark.parametrize(
    "status",
    [
        {"phase": "Scheduled"},
        {"migrationState": {"migrationUid": "a", "sourceNode": "one", "completed": False}},
    ],
)
def test_a_change_waits_until_the_vmi_runs_and_has_migrated(status):
    found = decide(sockets(3), **status)
    assert (found.change, found.deferred) == (None, True)
    assert decide(sockets(5), **status).restart == MORE_SOCKETS, "which it does at once"


def test_a_vmi_without_a_node_needs_a_restart():
    def change(spec):
        spec["nodeSelector"] = {"disk": "fast"}

    assert decide(change, phase="Scheduling").restart == TEMPLATE
    assert decide(lambda spec: spec, phase="Scheduling").restart == ""


def test_memory_shrinks_to_what_the_vmi_has_booted_with():
    present = with_room(STARTED)
    guest("3Gi")(present)
    assert decide(guest("1Gi"), present=present).change == {"domain": {"memory": {"guest": "1Gi"}}}
