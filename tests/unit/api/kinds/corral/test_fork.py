"""A VMI that is a fork of another one."""

import msgspec
from msgspec.structs import replace

from corral.api.kinds.corral.checkpoint import VirtualMachineCheckpoint
from corral.api.kinds.corral.fork import fork_annotations, fork_of

SOURCE = {
    "apiVersion": "kubevirt.io/v1",
    "kind": "VirtualMachineInstance",
    "metadata": {
        "name": "vm",
        "namespace": "lab",
        "uid": "1",
        "labels": {"app": "web"},
        "ownerReferences": [{"kind": "VirtualMachineInstanceReplicaSet", "name": "set"}],
    },
    "spec": {
        "hostname": "web",
        "nodeSelector": {"disk": "fast"},
        "domain": {"firmware": {"uuid": "2", "serial": "3", "bootloader": {"bios": {}}}},
    },
    "status": {"phase": "Running"},
}
CHECKPOINT = msgspec.convert(
    {
        "metadata": {"name": "base", "namespace": "lab"},
        "spec": {"source": {"name": "vm"}},
        "status": {"nodeName": "node1", "identity": "4", "sizeBytes": 1},
    },
    VirtualMachineCheckpoint,
)


def test_a_fork_belongs_to_no_set_and_no_service_of_its_source():
    metadata = fork_of(SOURCE, CHECKPOINT)["metadata"]
    assert metadata == {
        "generateName": "vm-",
        "namespace": "lab",
        "annotations": {
            "corral.dev/start-from": "base",
            "corral.dev/start-on": "node1",
            "corral.dev/identity": "4",
        },
    }


def test_devices_of_a_fork_have_the_queues_of_a_source_that_may_get_more_sockets():
    made = replace(CHECKPOINT, status=replace(CHECKPOINT.status, boot_sockets=2))
    assert fork_annotations(made)["corral.dev/boot-sockets"] == "2"


def test_a_fork_is_bound_to_no_node_but_for_its_start():
    fork = fork_of(SOURCE, CHECKPOINT)
    assert fork["spec"]["nodeSelector"] == {"disk": "fast"}
    assert "status" not in fork


def test_a_fork_has_neither_the_name_nor_the_firmware_of_its_source():
    spec = fork_of(SOURCE, CHECKPOINT)["spec"]
    assert "hostname" not in spec
    assert spec["domain"]["firmware"] == {"bootloader": {"bios": {}}}
    assert SOURCE["spec"]["domain"]["firmware"]["uuid"] == "2"
