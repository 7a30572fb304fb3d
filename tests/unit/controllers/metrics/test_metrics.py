"""Metrics of VirtualMachines and instances, as KubeVirt has them."""

import msgspec
import pytest
from lightkube.models.core_v1 import (
    PersistentVolumeClaim,
    PersistentVolumeClaimSpec,
    VolumeResourceRequirements as Resources,
)

from corral.api.kinds.kubevirt.virtualmachine import VirtualMachine
from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.api.object import Key
from corral.controllers.metrics import instances, virtual_machines

NAMED = {"name": "vm", "namespace": "default"}


def series(families, name: str) -> list[tuple[dict[str, str], float]]:
    """The labels of each series of a family beside those that name the object, and its value."""
    (family,) = [each for each in families if each.name == name]
    samples = []
    for sample in family.samples:
        assert NAMED.items() <= sample.labels.items()
        samples.append(({k: v for k, v in sample.labels.items() if k not in NAMED}, sample.value))
    return samples


def vm(status=None, annotations=None, domain=None, **spec) -> VirtualMachine:
    template = {
        "metadata": {"annotations": annotations or {}},
        "spec": {"domain": {"devices": {}, **(domain or {})}, **spec},
    }
    document = {
        "metadata": {**NAMED, "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"runStrategy": "Always", "template": template},
        "status": status or {},
    }
    return msgspec.convert(document, VirtualMachine)


def vm_series(machine: VirtualMachine, name: str, claims=None):
    return series(virtual_machines.families([machine], (claims or {}).get), f"kubevirt_vm_{name}")


def test_metrics_of_a_vm_from_its_spec():
    machine = vm(
        {"printableStatus": "Running"},
        {"vm.kubevirt.io/os": "fedora", "vm.kubevirt.io/flavor": "small"},
        {"machine": {"type": "q35"}},
    )
    ((labels, value),) = vm_series(machine, "info")
    assert value == 1
    assert labels == {
        "os": "fedora",
        "workload": "",
        "flavor": "small",
        "machine_type": "q35",
        "instance_type": "",
        "preference": "",
        "status": "running",
        "status_group": "running",
    }
    assert vm_series(machine, "create_date_timestamp_seconds") == [({}, 1767225600)]


GROUPS = ("starting", "running", "migrating", "non_running", "error")


@pytest.mark.parametrize(
    ("status", "group", "label"),
    [
        ("Provisioning", "starting", "starting"),
        ("Running", "running", "running"),
        ("Paused", "non_running", "non_running"),
        ("Terminating", "non_running", "non_running"),
        ("CrashLoopBackOff", "error", "error"),
        ("ErrorPvcNotFound", "error", "error"),
        ("", "error", "<unknown>"),
    ],
)
def test_the_last_transition_is_exposed_in_the_group_of_the_status(status, group, label):
    conditions = [
        {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:05Z"},
        {"type": "Paused", "status": "True", "lastTransitionTime": "2026-01-01T00:00:03Z"},
        {"type": "AgentConnected", "status": "True", "lastTransitionTime": "2026-01-02T00:00:00Z"},
    ]
    machine = vm({"printableStatus": status, "conditions": conditions})
    assert vm_series(machine, "info")[0][0]["status_group"] == label
    for each in GROUPS:
        turned = vm_series(machine, f"{each}_status_last_transition_timestamp_seconds")
        assert turned == [({}, 1767225605 if each == group else 0)]


def test_resource_requests_of_a_vm():
    domain = {
        "cpu": {"cores": 2},
        "memory": {"guest": "1Gi"},
        "resources": {"requests": {"memory": "64M", "cpu": "250m"}, "limits": {"cpu": "1500m"}},
    }
    machine = vm(domain=domain)
    requests = {
        (one["resource"], one["source"]): value
        for one, value in vm_series(machine, "resource_requests")
    }
    assert requests == {
        ("memory", "domain"): 64_000_000,
        ("memory", "guest"): 1 << 30,
        ("cpu", "requests"): 0.25,
        ("cpu", "domain"): 2,
    }
    assert vm_series(machine, "resource_limits") == [({"resource": "cpu", "unit": "cores"}, 1.5)]
    nothing = vm_series(vm(), "resource_requests")
    assert {(one["unit"], one["source"], value) for one, value in nothing} == {
        (unit, "default", 1) for unit in ("cores", "sockets", "threads")
    }


def test_disks_and_interfaces_of_a_vm():
    machine = vm(
        volumes=[
            {"name": "data", "persistentVolumeClaim": {"claimName": "c"}},
            {"name": "lost", "persistentVolumeClaim": {"claimName": "gone"}},
        ],
        networks=[{"name": "default", "pod": {}}, {"name": "x", "multus": {"networkName": "net"}}],
        domain={
            "devices": {
                "interfaces": [
                    {"name": "default", "masquerade": {}},
                    {"name": "x", "model": "e1000", "bridge": {}},
                    {"name": "loose", "bridge": {}},
                ]
            }
        },
    )
    resources = Resources(requests={"storage": "1Gi"})
    claim = PersistentVolumeClaim(
        spec=PersistentVolumeClaimSpec(resources=resources, volumeMode="Block")
    )
    sizes = vm_series(machine, "disk_allocated_size_bytes", {Key("default", "c"): claim})
    named = {"persistentvolumeclaim": "c", "volume_mode": "Block", "device": "data"}
    assert sizes == [(named, 1 << 30)]
    cards = {one["vnic_name"]: one for one, _ in vm_series(machine, "vnic_info")}
    assert cards.keys() == {"default", "x"}
    assert cards["default"]["network"] == "pod networking"
    assert cards["default"]["binding_name"] == "masquerade"
    assert cards["x"]["network"] == "net"
    assert (cards["x"]["binding_type"], cards["x"]["model"]) == ("core", "e1000")


@pytest.mark.parametrize(
    ("strategy", "conditions", "evictable"),
    [
        (None, [], True),
        ("LiveMigrateIfPossible", [], True),
        ("LiveMigrate", [], False),
        ("LiveMigrate", [{"type": "LiveMigratable", "status": "False"}], False),
        ("LiveMigrate", [{"type": "LiveMigratable", "status": "True"}], True),
    ],
)
def test_a_vmi_that_must_migrate_and_cannot_is_exposed(strategy, conditions, evictable):
    document = {
        "metadata": {**NAMED, "uid": "u"},
        "spec": {"domain": {"devices": {}}, "evictionStrategy": strategy},
        "status": {"conditions": conditions, "phase": "Running", "nodeName": "node"},
    }
    vmi = msgspec.convert(document, VirtualMachineInstance)
    families = instances.families([vmi], {"u": "launcher"})
    ((info, _),) = series(families, "kubevirt_vmi_info")
    assert info["evictable"] == ("true" if evictable else "false")
    assert (info["vmi_pod"], info["phase"], info["node"]) == ("launcher", "running", "node")
    assert series(families, "kubevirt_vmi_non_evictable") == [({"node": "node"}, not evictable)]
