"""The 2018 form of manifests, read as what it became."""

from typing import Any

from corral.api.kinds import KINDS


def read(version: str, kind: str, document: dict[str, Any]) -> dict[str, Any]:
    row = KINDS.by_kind("kubevirt.io", kind)
    assert row is not None
    [served] = [one for one in row.versions if one.name == version]
    if served.read is not None:
        served.read(document)
    return document


def old_spec() -> dict[str, Any]:
    return {
        "domain": {
            "devices": {"disks": [{"name": "registrydisk", "volumeName": "registryvolume"}]},
            "resources": {"requests": {"memory": "64M"}},
        },
        "volumes": [
            {
                "name": "registryvolume",
                "registryDisk": {"image": "kubevirt/cirros-registry-disk-demo:devel"},
            }
        ],
    }


NEW_SPEC = {
    "domain": {
        "devices": {"disks": [{"name": "registryvolume"}]},
        "resources": {"requests": {"memory": "64M"}},
    },
    "volumes": [
        {
            "name": "registryvolume",
            "containerDisk": {"image": "kubevirt/cirros-registry-disk-demo:devel"},
        }
    ],
}


def test_the_oldest_machines_are_read():
    assert read("v1alpha2", "VirtualMachineInstance", {"spec": old_spec()}) == {"spec": NEW_SPEC}


def test_the_oldest_replica_sets_are_read():
    document = {"spec": {"template": {"spec": old_spec()}}}
    assert read("v1alpha2", "VirtualMachineInstanceReplicaSet", document) == {
        "spec": {"template": {"spec": NEW_SPEC}}
    }


def test_later_versions_are_read_as_they_are():
    document = {"spec": {"template": {"spec": old_spec()}}}
    for version in ("v1", "v1alpha3"):
        same = read(version, "VirtualMachineInstanceReplicaSet", document)
        assert same == {"spec": {"template": {"spec": old_spec()}}}


def test_nonsense_is_left_to_the_schema():
    for document in (
        {},
        {"spec": None},
        {"spec": {"volumes": "none", "domain": {"devices": {"disks": [None, 7]}}}},
        {"spec": {"template": []}},
    ):
        read("v1alpha2", "VirtualMachineInstance", dict(document))
        read("v1alpha2", "VirtualMachineInstanceReplicaSet", dict(document))
