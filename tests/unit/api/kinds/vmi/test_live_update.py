"""Room for sockets and memory, and what may be plugged in."""

import copy

import msgspec
import pytest

from corral.api.kinds.vmi.live_update import (
    BOOT_SOCKETS,
    LiveUpdateConfiguration,
    add_room,
    has_room,
    is_live_change,
    memory_fault,
    present_processors,
    queues,
    read_configuration,
)
from corral.api.kinds.vmi.vmi import Spec, VirtualMachineInstance
from corral.api.quantity import amount

DEFAULTS = LiveUpdateConfiguration()


def spec_of(**domain):
    return {"domain": {"devices": {}, **domain}}


def roomy(configuration=DEFAULTS, **domain):
    document = {"metadata": {"annotations": {}}, "spec": spec_of(**domain)}
    add_room(document, configuration)
    return document["spec"]["domain"]


def test_a_new_vmi_gets_room_for_four_times_its_sockets_and_memory():
    domain = roomy(cpu={"sockets": 2}, memory={"guest": "1Gi"})
    assert domain["cpu"]["maxSockets"] == 8
    assert amount(domain["memory"]["maxGuest"]) == amount("4Gi")


@pytest.mark.parametrize(
    ("configuration", "sockets", "memory"),
    [
        ({"maxHotplugRatio": 2}, 2, "2Gi"),
        ({"maxHotplugRatio": 1}, 1, "1Gi"),
        ({"maxCpuSockets": 10, "maxGuest": "3Gi"}, 10, "3Gi"),
    ],
)
def test_the_configuration_says_how_much_room_there_is(configuration, sockets, memory):
    domain = roomy(read_configuration(configuration), memory={"guest": "1Gi"})
    assert domain["cpu"]["maxSockets"] == sockets
    assert amount(domain["memory"]["maxGuest"]) == amount(memory)


def test_room_that_the_template_names_stays():
    given = {"sockets": 1, "maxSockets": 3}
    domain = roomy(cpu=dict(given), memory={"guest": "1Gi", "maxGuest": "2Gi"})
    assert domain["cpu"] == given
    assert domain["memory"]["maxGuest"] == "2Gi"


def test_sockets_are_bounded_by_what_a_machine_can_address():
    assert roomy(cpu={"sockets": 40, "cores": 2})["cpu"]["maxSockets"] == 127


def test_a_small_guest_gets_no_room_for_memory():
    assert "maxGuest" not in roomy(memory={"guest": "128Mi"})["memory"]


@pytest.mark.parametrize(
    ("settings", "fault"),
    [
        ({"maxHotplugRatio": "many"}, "maxHotplugRatio"),
        ({"maxCpuSockets": -1}, "maxCpuSockets: -1 is less than 0"),
        ({"maxGuest": "big"}, "maxGuest"),
    ],
)
def test_invalid_settings_are_named(settings, fault):
    with pytest.raises(ValueError, match=fault):
        read_configuration(settings)


@pytest.mark.parametrize(
    ("domain", "largest", "fault"),
    [
        ({"memory": {"guest": "1Gi"}}, "4Gi", ""),
        ({"memory": {"guest": "2Gi"}}, "1Gi", "greater than the configured maxGuest memory"),
        ({"memory": {"guest": "1025Mi"}}, "4Gi", "Guest memory must be 2Mi aligned"),
        ({"memory": {"guest": "1Gi"}}, "4097Mi", "MaxGuest must be 2Mi aligned"),
        ({"memory": {"guest": "512Mi"}}, "4Gi", "at least 1Gi of guest memory"),
        ({}, "4Gi", "Guest memory must be configured when memory hotplug is enabled"),
        (
            {"memory": {"guest": "1Gi"}, "launchSecurity": {}},
            "4Gi",
            "not compatible with encrypted VMs",
        ),
    ],
)
def test_memory_that_cannot_be_plugged_in(domain, largest, fault):
    found = memory_fault(msgspec.convert(spec_of(**domain), Spec), amount(largest))
    assert found == "" if not fault else fault in found


def vmi(status=None, **domain):
    document = {
        "metadata": {"name": "vm"},
        "spec": spec_of(**domain),
        "status": status or {},
    }
    return msgspec.convert(document, VirtualMachineInstance)


def test_a_machine_has_room_if_it_may_have_more_than_it_booted_with():
    assert not has_room(vmi(cpu={"sockets": 1}))
    assert has_room(vmi(cpu={"sockets": 1, "maxSockets": 2}))
    assert has_room(vmi(cpu={"sockets": 2, "maxSockets": 2})), "it may have begun with one"
    assert has_room(vmi(memory={"guest": "1Gi", "maxGuest": "2Gi"}))
    grown = {"memory": {"guestAtBoot": "1Gi"}}
    assert has_room(vmi(grown, memory={"guest": "2Gi", "maxGuest": "2Gi"}))


def test_devices_keep_the_queues_of_the_sockets_that_the_vmi_has_started_with():
    started = {"cpu": {"sockets": 2, "cores": 3}}
    document = {"metadata": {"name": "vm", "annotations": {}}, "spec": spec_of(**started)}
    add_room(document, DEFAULTS)
    document["spec"]["domain"]["cpu"]["sockets"] = 4
    assert queues(msgspec.convert(document, VirtualMachineInstance)) == 6
    assert queues(vmi(**started)) is None
    for invalid in ("0", "-1", "many", "999"):
        document["metadata"]["annotations"][BOOT_SOCKETS] = invalid
        assert queues(msgspec.convert(document, VirtualMachineInstance)) is None


def test_the_topology_is_that_of_the_status_once_there_is_one():
    assert present_processors(vmi(cpu={"sockets": 2, "cores": 3})) == (2, 3, 1)
    status = {"currentCPUTopology": {"sockets": 1, "cores": 3, "threads": 1}}
    assert present_processors(vmi(status, cpu={"sockets": 2, "cores": 3})) == (1, 3, 1)


@pytest.mark.parametrize(
    ("change", "is_live"),
    [
        (lambda spec: spec["domain"].update(cpu={"sockets": 4}), True),
        (lambda spec: spec["domain"].update(memory={"guest": "2Gi"}), True),
        (lambda spec: spec.update(nodeSelector={"a": "b"}), True),
        (lambda spec: spec.update(tolerations=[{"key": "a"}]), True),
        (lambda spec: spec["domain"].update(cpu={"cores": 2}), False),
        (lambda spec: spec.update(hostname="other"), False),
    ],
)
def test_sockets_memory_and_placement_are_live_changes(change, is_live):
    old = spec_of(cpu={"sockets": 1}, memory={"guest": "1Gi"})
    new = copy.deepcopy(old)
    change(new)
    assert is_live_change(msgspec.convert(old, Spec), msgspec.convert(new, Spec)) is is_live


@pytest.mark.parametrize("settings", ["4Gi", ["maxGuest"], 5])
def test_a_configuration_that_is_no_object_is_invalid(settings):
    with pytest.raises(ValueError, match="Expected `object`"):
        read_configuration(settings)
