"""Instance types and preferences applied to templates (KubeVirt's pkg/instancetype/apply)."""

import msgspec
import pytest

from corral.api.instancetypes.apply import apply
from corral.api.kinds.kubevirt.instancetype import InstancetypeSpec, PreferenceSpec


def instancetype(**fields):
    whole = {"cpu": {"guest": 4}, "memory": {"guest": "1Gi"}, **fields}
    return msgspec.convert(whole, InstancetypeSpec)


def preference(**fields):
    return msgspec.convert(fields, PreferenceSpec)


def template(domain=None, **spec):
    return {"spec": {"domain": {"devices": {}, **(domain or {})}, **spec}}


def applied(template_, type_=None, preferred=None):
    assert apply(template_, type_, preferred) == []
    return template_["spec"]


def test_an_instance_type_sets_cpu_and_memory():
    spec = applied(template(), instancetype())
    assert spec["domain"]["cpu"] == {"sockets": 4, "cores": 1, "threads": 1}
    assert spec["domain"]["memory"] == {"guest": "1Gi"}
    assert "resources" not in spec["domain"]


@pytest.mark.parametrize(
    ("cpu", "layout"),
    [
        ({}, (4, 1, 1)),
        ({"preferredCPUTopology": "sockets"}, (4, 1, 1)),
        ({"preferredCPUTopology": "preferSockets"}, (4, 1, 1)),
        ({"preferredCPUTopology": "any"}, (4, 1, 1)),
        ({"preferredCPUTopology": "cores"}, (1, 4, 1)),
        ({"preferredCPUTopology": "preferCores"}, (1, 4, 1)),
        ({"preferredCPUTopology": "threads"}, (1, 1, 4)),
        ({"preferredCPUTopology": "spread"}, (2, 2, 1)),
        ({"preferredCPUTopology": "spread", "spreadOptions": {"ratio": 4}}, (1, 4, 1)),
        (
            {"preferredCPUTopology": "spread", "spreadOptions": {"across": "CoresThreads"}},
            (1, 2, 2),
        ),
        (
            {"preferredCPUTopology": "spread", "spreadOptions": {"across": "SocketsCoresThreads"}},
            (1, 2, 2),
        ),
    ],
)
def test_the_cpu_topology_is_the_preferred_one(cpu, layout):
    spec = applied(template(), instancetype(), preference(cpu=cpu))
    assert tuple(spec["domain"]["cpu"][part] for part in ("sockets", "cores", "threads")) == layout


def test_a_single_vcpu_has_one_topology():
    one = instancetype(cpu={"guest": 1})
    spec = applied(template(), one, preference(cpu={"preferredCPUTopology": "cores"}))
    assert spec["domain"]["cpu"] == {"sockets": 1, "cores": 1, "threads": 1}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"ratio": 3}, "Spec.PreferSpreadSocketToCoreRatio"),
        ({"across": "CoresThreads", "ratio": 3}, "number of threads per core 3"),
        ({"across": "SocketsCoresThreads", "ratio": 4}, "threads per core 2 and Spec.Prefer"),
    ],
)
def test_vcpus_that_cannot_be_spread_are_rejected(options, expected):
    cpu = {"preferredCPUTopology": "spread", "spreadOptions": options}
    (cause,) = apply(template(), instancetype(), preference(cpu=cpu))
    assert cause.field == "instancetype.spec.cpu.guest"
    assert cause.message.startswith("4 vCPUs provided by the instance type are not divisible by")
    assert expected in cause.message


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        (template({"cpu": {"sockets": 1}}), "domain.cpu.sockets"),
        (template({"cpu": {"cores": 1}}), "domain.cpu.cores"),
        (template({"cpu": {"threads": 1}}), "domain.cpu.threads"),
        (template({"memory": {"guest": "1Gi"}}), "domain.memory.guest"),
        (
            template({"resources": {"requests": {"memory": "1Gi"}}}),
            "domain.resources.requests.memory",
        ),
        (template({"resources": {"limits": {"cpu": "1"}}}), "domain.resources.limits.cpu"),
        (template(nodeSelector={"a": "b"}), "nodeSelector"),
        (template(schedulerName="other"), "schedulerName"),
        (template({"cpu": {"model": "Nehalem"}}), "domain.cpu.model"),
    ],
)
def test_fields_of_the_instance_type_conflict_with_the_template(spec, field):
    instance_type = instancetype(
        cpu={"guest": 4, "model": "host-model"}, nodeSelector={"c": "d"}, schedulerName="mine"
    )
    (cause,) = apply(spec, instance_type, None)
    assert cause.field == f"spec.template.spec.{field}"
    expected = f"VM field(s) spec.template.spec.{field} conflicts with selected instance type"
    assert cause.message == expected


def test_fields_unset_in_the_instance_type_may_be_in_the_template():
    spec = applied(
        template({"cpu": {"model": "host-passthrough"}}, nodeSelector={"a": "b"}), instancetype()
    )
    assert spec["nodeSelector"] == {"a": "b"}
    assert spec["domain"]["cpu"]["model"] == "host-passthrough"


def test_overcommitted_memory_is_requested_in_part():
    some = instancetype(memory={"guest": "128Mi", "overcommitPercent": 15})
    spec = applied(template(), some)
    assert spec["domain"]["memory"]["guest"] == "128Mi"
    assert spec["domain"]["resources"]["requests"]["memory"] == "114085072"


def test_annotations_are_copied_and_conflict():
    some = instancetype(annotations={"a": "1"})
    whole = template() | {"metadata": {"annotations": {"b": "2"}}}
    assert apply(whole, some, preference(annotations={"b": "3", "c": "4"})) == []
    assert whole["metadata"]["annotations"] == {"a": "1", "b": "2", "c": "4"}
    (cause,) = apply(template() | {"metadata": {"annotations": {"a": "2"}}}, some, None)
    assert cause.field == "annotations.a"


def test_unset_devices_get_the_preferred_values():
    devices = {
        "disks": [
            {"name": "root"},
            {"name": "data", "disk": {"bus": "sata"}, "cache": "none"},
            {"name": "cd", "cdrom": {}},
        ],
        "interfaces": [{"name": "default"}, {"name": "other", "bridge": {}}],
        "inputs": [{"name": "tablet", "type": "tablet"}],
    }
    preferred = preference(
        devices={
            "preferredDiskBus": "virtio",
            "preferredDiskCache": "writeback",
            "preferredDiskDedicatedIoThread": True,
            "preferredCdromBus": "scsi",
            "preferredInterfaceModel": "e1000e",
            "preferredInterfaceMasquerade": {},
            "preferredInputBus": "usb",
            "preferredAutoattachGraphicsDevice": False,
            "preferredPanicDeviceModel": "isa",
            "preferredRng": {},
        }
    )
    networks = [{"name": "default", "pod": {}}, {"name": "other", "pod": {}}]
    spec = applied(template({"devices": devices}, networks=networks), None, preferred)
    expected = spec["domain"]["devices"]
    assert expected["disks"] == [
        {
            "name": "root",
            "disk": {"bus": "virtio"},
            "cache": "writeback",
            "dedicatedIOThread": True,
        },
        {"name": "data", "disk": {"bus": "sata"}, "cache": "none"},
        {"name": "cd", "cdrom": {"bus": "scsi"}},
    ]
    assert expected["interfaces"] == [
        {"name": "default", "model": "e1000e", "masquerade": {}},
        {"name": "other", "model": "e1000e", "bridge": {}},
    ]
    assert expected["inputs"] == [{"name": "tablet", "type": "tablet", "bus": "usb"}]
    assert expected["autoattachGraphicsDevice"] is False
    assert expected["panicDevices"] == [{"model": "isa"}]
    assert expected["rng"] == {}


@pytest.mark.parametrize(
    ("firmware", "own", "loader"),
    [
        ({"preferredUseBios": True}, None, {"bios": {}}),
        (
            {"preferredUseBios": True, "preferredUseBiosSerial": True},
            None,
            {"bios": {"useSerial": True}},
        ),
        ({"preferredEfi": {"secureBoot": False}}, None, {"efi": {"secureBoot": False}}),
        (
            {"preferredUseEfi": True, "preferredUseSecureBoot": True},
            None,
            {"efi": {"secureBoot": True}},
        ),
        ({"preferredEfi": {}}, {"bios": {}}, {"bios": {}}),
    ],
)
def test_unset_firmware_gets_the_preferred_value(firmware, own, loader):
    domain = {"firmware": {"bootloader": own}} if own else {}
    spec = applied(template(domain), None, preference(firmware=firmware))
    assert spec["domain"]["firmware"]["bootloader"] == loader


def test_other_unset_fields_get_the_preferred_values():
    preferred = preference(
        features={"preferredSmm": {"enabled": True}, "preferredHyperv": {"relaxed": {}}},
        machine={"preferredMachineType": "pc"},
        clock={
            "preferredClockOffset": {"timezone": "Europe/Berlin"},
            "preferredTimer": {"pit": {}},
        },
        preferredSubdomain="sub",
        preferredTerminationGracePeriodSeconds=0,
    )
    spec = applied(template({"features": {"hyperv": {"vapic": {}}}}), None, preferred)
    assert spec["subdomain"] == "sub"
    assert spec["terminationGracePeriodSeconds"] == 0
    domain = spec["domain"]
    assert domain["machine"] == {"type": "pc"}
    assert domain["clock"] == {"timezone": "Europe/Berlin", "timer": {"pit": {}}}
    assert domain["features"] == {
        "smm": {"enabled": True},
        "hyperv": {"relaxed": {}, "vapic": {}},
    }
