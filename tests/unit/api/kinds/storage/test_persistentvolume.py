"""Volumes: what they get, what kubectl prints of them, what they may not be, how they change."""

from copy import deepcopy

import pytest

from corral.api.kinds.storage.persistentvolume import PERSISTENT_VOLUME
from corral.api.kinds.storage.storageclass import STORAGE_CLASS

HANDLE = {"csi": {"driver": "corral.dev", "volumeHandle": "pvc-1"}}


def volume(**spec):
    document = {
        "metadata": {"name": "disk"},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "capacity": {"storage": "1Gi"},
            **(spec or HANDLE),
        },
    }
    PERSISTENT_VOLUME.default_create(document)
    PERSISTENT_VOLUME.default(document)
    return document


def messages(document, old=None):
    causes = PERSISTENT_VOLUME.validate(document, old, "kubernetes-admin").causes
    return [f"{cause.field}: {cause.message}" for cause in causes]


def test_defaults_of_volumes():
    document = volume()
    assert document["metadata"]["finalizers"] == ["kubernetes.io/pv-protection"]
    assert document["status"] == {"phase": "Pending"}
    assert document["spec"]["persistentVolumeReclaimPolicy"] == "Retain"
    assert document["spec"]["volumeMode"] == "Filesystem"
    assert messages(document) == []


def test_tables_of_volumes_have_the_claim():
    claim = {"namespace": "default", "name": "data"}
    document = volume(**HANDLE, claimRef=claim, storageClassName="corral")
    document["status"]["phase"] = "Bound"
    shown = {column.name: column.cell(document) for column in PERSISTENT_VOLUME.columns}
    assert shown == {
        "Capacity": "1Gi",
        "Access Modes": "RWO",
        "Reclaim Policy": "Retain",
        "Status": "Bound",
        "Claim": "default/data",
        "StorageClass": "corral",
        "VolumeAttributesClass": "<unset>",
        "Reason": "",
        "Age": None,
        "VolumeMode": "Filesystem",
    }


@pytest.mark.parametrize(
    ("spec", "cause"),
    [
        ({**HANDLE, "accessModes": []}, "spec.accessModes: Required value"),
        ({**HANDLE, "capacity": {}}, "spec.capacity: Required value"),
        (
            {**HANDLE, "capacity": {"cpu": "1"}},
            'spec.capacity: Unsupported value: {"cpu":"1"}: supported values: "storage"',
        ),
        (
            {**HANDLE, "capacity": {"storage": "0"}},
            'spec.capacity[storage]: Invalid value: "0": must be greater than zero',
        ),
        ({"storageClassName": "a"}, "spec: Required value: must specify a volume type"),
        (
            {**HANDLE, "hostPath": {"path": "/srv"}},
            "spec.hostPath: Forbidden: may not specify more than 1 volume type",
        ),
        ({"csi": {"driver": "", "volumeHandle": "x"}}, "spec.csi.driver: Required value"),
        ({"hostPath": {"path": ""}}, "spec.hostPath.path: Required value"),
        (
            {"hostPath": {"path": "/a/../b"}},
            "spec.hostPath.path: Invalid value: \"/a/../b\": must not contain '..'",
        ),
        (
            {"hostPath": {"path": "/"}, "persistentVolumeReclaimPolicy": "Recycle"},
            (
                "spec.persistentVolumeReclaimPolicy: Forbidden: "
                "may not be 'recycle' for a hostPath volume at '/'"
            ),
        ),
        (
            {"local": {"path": "/srv"}},
            "spec.nodeAffinity: Required value: Local volume requires node affinity",
        ),
        (
            {**HANDLE, "persistentVolumeReclaimPolicy": "Burn"},
            (
                'spec.persistentVolumeReclaimPolicy: Unsupported value: "Burn": supported values: '
                '"Delete", "Recycle", "Retain"'
            ),
        ),
        (
            {**HANDLE, "nodeAffinity": {}, "volumeMode": "Disk"},
            'spec.volumeMode: Unsupported value: "Disk": supported values: "Block", "Filesystem"',
        ),
        (
            {**HANDLE, "nodeAffinity": {"required": {"nodeSelectorTerms": []}}},
            (
                "spec.nodeAffinity.required.nodeSelectorTerms: Required value: "
                "must have at least one node selector term"
            ),
        ),
    ],
)
def test_invalid_volumes_are_rejected(spec, cause):
    assert cause in messages(volume(**spec))


def test_the_source_and_affinity_of_a_volume_are_immutable():
    old = volume()
    new = deepcopy(old)
    new["spec"]["csi"]["volumeHandle"] = "pvc-2"
    new["spec"]["volumeMode"] = "Block"
    moved, mode = messages(new, old)
    assert moved.startswith(
        "spec.persistentvolumesource: Forbidden: spec.persistentvolumesource is immutable after "
        "creation\n- csi: "
    )
    assert mode == 'volumeMode: Invalid value: "Block": field is immutable'


def test_capacity_and_reclaim_policy_can_change():
    old = volume()
    new = deepcopy(old)
    new["spec"] |= {"capacity": {"storage": "2Gi"}, "persistentVolumeReclaimPolicy": "Delete"}
    assert messages(new, old) == []


# ------------------------------------------------------------------- classes


def storage_class(**fields):
    document = {"metadata": {"name": "fast"}, "provisioner": "corral.dev/directory", **fields}
    STORAGE_CLASS.default(document)
    return document


def validate_class(document, old=None):
    causes = STORAGE_CLASS.validate(document, old, "kubernetes-admin").causes
    return [f"{cause.field}: {cause.message}" for cause in causes]


@pytest.mark.parametrize(
    ("annotations", "name"),
    [
        ({}, "fast"),
        ({"storageclass.kubernetes.io/is-default-class": "true"}, "fast (default)"),
        ({"storageclass.beta.kubernetes.io/is-default-class": "true"}, "fast (default)"),
        ({"storageclass.kubernetes.io/is-default-class": "false"}, "fast"),
    ],
)
def test_tables_of_classes_mark_the_default(annotations, name):
    document = storage_class()
    document["metadata"]["annotations"] = annotations
    shown = [column.cell(document) for column in STORAGE_CLASS.columns]
    assert shown == [name, "corral.dev/directory", "Delete", "Immediate", "false", None]


@pytest.mark.parametrize(
    ("fields", "cause"),
    [
        ({"provisioner": ""}, "provisioner: Required value"),
        (
            {"reclaimPolicy": "Recycle"},
            'reclaimPolicy: Unsupported value: "Recycle": supported values: "Delete", "Retain"',
        ),
        (
            {"volumeBindingMode": "Later"},
            (
                'volumeBindingMode: Unsupported value: "Later": supported values: "Immediate", '
                '"WaitForFirstConsumer"'
            ),
        ),
    ],
)
def test_invalid_classes_are_rejected(fields, cause):
    assert validate_class(storage_class(**fields)) == [cause]


def test_parameters_of_a_class_are_immutable():
    old = storage_class()
    new = storage_class(
        provisioner="other",
        reclaimPolicy="Retain",
        parameters={"type": "ssd"},
        volumeBindingMode="WaitForFirstConsumer",
        allowVolumeExpansion=True,
    )
    assert validate_class(new, old) == [
        "parameters: Forbidden: updates to parameters are forbidden.",
        "provisioner: Forbidden: updates to provisioner are forbidden.",
        "reclaimPolicy: Forbidden: updates to reclaimPolicy are forbidden.",
        'volumeBindingMode: Invalid value: "WaitForFirstConsumer": field is immutable',
    ]
