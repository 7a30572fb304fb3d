"""The 2018 form of manifests, read as what it became."""

import json
from copy import deepcopy
from typing import Any

import pytest

from corral.api.apply.last_applied import ANNOTATION
from corral.api.kinds import KINDS
from corral.api.kinds.kubevirt.v1alpha2 import hint


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


def test_vmis_of_v1alpha2_are_converted():
    assert read("v1alpha2", "VirtualMachineInstance", {"spec": old_spec()}) == {"spec": NEW_SPEC}


def test_replica_sets_of_v1alpha2_are_converted():
    document = {"spec": {"template": {"spec": old_spec()}}}
    assert read("v1alpha2", "VirtualMachineInstanceReplicaSet", document) == {
        "spec": {"template": {"spec": NEW_SPEC}}
    }


def test_the_storage_version_is_not_converted():
    document = {"spec": {"template": {"spec": old_spec()}}}
    same = read("v1", "VirtualMachineInstanceReplicaSet", document)
    assert same == {"spec": {"template": {"spec": old_spec()}}}


@pytest.mark.parametrize("version", ["v1alpha2", "v1alpha3"])
def test_managed_fields_of_v1alpha2_are_converted(version):
    row = KINDS.by_kind("kubevirt.io", "VirtualMachineInstance")
    spell = row.by_name[version].spell
    applied = json.dumps({"spec": old_spec()})
    metadata = {"annotations": {ANNOTATION: applied}}
    shown = {"metadata": metadata, "spec": deepcopy(NEW_SPEC)}
    spell(shown)
    assert shown["spec"] == old_spec()
    metadata["annotations"][ANNOTATION] = applied.replace(
        '"name": "registryd', '"disk": null, "name": "registryd'
    )
    shown = {"metadata": metadata, "spec": deepcopy(NEW_SPEC)}
    spell(shown)
    assert shown["spec"]["domain"]["devices"]["disks"][0]["disk"] is None
    changed = {"metadata": metadata, "spec": deepcopy(NEW_SPEC)}
    changed["spec"]["volumes"][0]["containerDisk"] = {"image": "another"}
    spell(changed)
    assert changed["spec"]["volumes"][0]["containerDisk"] == {"image": "another"}
    for text in ("", "{", "[]", '{"spec": 5}'):
        metadata["annotations"] = {ANNOTATION: text}
        same = {"metadata": metadata, "spec": deepcopy(NEW_SPEC)}
        spell(same)
        assert same["spec"] == NEW_SPEC


def test_deprecated_fields_are_not_unknown_fields():
    row = KINDS.by_kind("kubevirt.io", "VirtualMachineInstance")
    assert "containerDisk" in hint(row, "spec.volumes[0].registryDisk")
    assert "name" in hint(row, "spec.domain.devices.disks[1].volumeName")
    assert hint(row, "spec.volumes[0].nosuch") == ""


def test_invalid_values_are_left_to_the_schema():
    for document in (
        {},
        {"spec": None},
        {"spec": {"volumes": "none", "domain": {"devices": {"disks": [None, 7]}}}},
        {"spec": {"template": []}},
    ):
        read("v1alpha2", "VirtualMachineInstance", dict(document))
        read("v1alpha2", "VirtualMachineInstanceReplicaSet", dict(document))
