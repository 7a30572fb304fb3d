"""Which changes of a template wait for the next start (VM:2986-3075)."""

import copy

import msgspec
import pytest

from corral.api.kinds.kubevirt.virtualmachine import VirtualMachineSpec
from corral.controllers.vm.restart import (
    FEWER_SOCKETS,
    INSTANCETYPE,
    MEMORY,
    MORE_SOCKETS,
    PREFERENCE,
    TEMPLATE,
    restart_reason,
)

STARTED = {
    "domain": {
        "cpu": {"sockets": 2, "cores": 1},
        "memory": {"guest": "1Gi"},
        "devices": {"disks": [{"name": "root", "disk": {"bus": "virtio"}}]},
    },
    "volumes": [{"name": "root", "containerDisk": {"image": "x"}}],
}


def of(template, **names):
    return msgspec.convert({"template": {"spec": template}, **names}, VirtualMachineSpec)


def reason(change):
    desired = copy.deepcopy(STARTED)
    change(desired)
    return restart_reason(of(STARTED), of(desired))


def sockets(count):
    return lambda spec: spec["domain"]["cpu"].update(sockets=count)


def guest(size):
    return lambda spec: spec["domain"]["memory"].update(guest=size)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda _spec: None, ""),
        (sockets(4), MORE_SOCKETS),
        (sockets(1), FEWER_SOCKETS),
        (lambda spec: spec["domain"]["cpu"].pop("sockets"), FEWER_SOCKETS),
        (guest("2Gi"), MEMORY),
        (guest("512Mi"), MEMORY),
        (guest("1024Mi"), ""),
        (lambda spec: spec["domain"]["cpu"].update(cores=2), TEMPLATE),
        (lambda spec: (sockets(4)(spec), guest("2Gi")(spec)), MORE_SOCKETS),
        (lambda spec: (sockets(4)(spec), spec.update(hostname="other")), TEMPLATE),
        (lambda spec: spec.update(nodeSelector={"a": "b"}), TEMPLATE),
        (lambda spec: spec.update(tolerations=[{"key": "a"}]), TEMPLATE),
        (lambda spec: spec["volumes"][0]["containerDisk"].update(image="y"), TEMPLATE),
    ],
)
def test_changes_that_require_a_restart(change, expected):
    assert reason(change) == expected


def test_a_cpu_topology_set_later_requires_a_restart():
    bare = {"domain": {"devices": {}}}
    one, two = ({"domain": {"devices": {}, "cpu": {"sockets": count}}} for count in (1, 2))
    assert restart_reason(of(bare), of(two)) == MORE_SOCKETS
    assert restart_reason(of(bare), of(one)) == "", "that is what it has"


def test_changed_fields_of_a_plugged_disk_require_a_restart():
    def plugged(**disk):
        spec = copy.deepcopy(STARTED)
        source = {"claimName": "data", "hotpluggable": True}
        spec["volumes"].append({"name": "data", "persistentVolumeClaim": source})
        spec["domain"]["devices"]["disks"].append({"name": "data", "disk": {"bus": "scsi"}, **disk})
        return of(spec)

    assert restart_reason(plugged(), plugged(serial="x")) == TEMPLATE
    assert restart_reason(plugged(), plugged()) == ""
    assert restart_reason(plugged(), of(STARTED)) == ""


def test_a_new_cdrom_drive_requires_a_restart_and_its_medium_does_not():
    def with_drive(*, drive=True, hotpluggable=True, claim="", **cdrom):
        spec = copy.deepcopy(STARTED)
        if drive:
            spec["domain"]["devices"]["disks"].append({"name": "cd", "cdrom": cdrom})
        if claim:
            source = {"claimName": claim, "hotpluggable": hotpluggable}
            spec["volumes"].insert(0, {"name": "cd", "persistentVolumeClaim": source})
        return of(spec)

    empty, full = with_drive(), with_drive(claim="one")
    assert restart_reason(empty, full) == ""
    assert restart_reason(full, with_drive(claim="two")) == ""
    assert restart_reason(full, empty) == ""
    assert restart_reason(full, of(STARTED)) == TEMPLATE, "the drive is gone"
    assert restart_reason(of(STARTED), full) == TEMPLATE, "the drive is new"
    assert restart_reason(empty, with_drive(claim="one", hotpluggable=False)) == TEMPLATE
    assert restart_reason(empty, with_drive(bus="scsi")) == TEMPLATE


@pytest.mark.parametrize(
    ("field", "message"), [("instancetype", INSTANCETYPE), ("preference", PREFERENCE)]
)
def test_another_instance_type_or_preference_requires_a_restart(field, message):
    small, large = ({field: {"name": name}} for name in ("small", "large"))
    assert restart_reason(of(STARTED, **small), of(STARTED, **large)) == message
    assert restart_reason(of(STARTED), of(STARTED, **small)) == message
    assert restart_reason(of(STARTED, **small), of(STARTED, **small)) == ""
