"""Claims: what they get, what kubectl prints of them, what they may not be, how they change."""

from copy import deepcopy

import pytest

from corral.api.kinds.storage.persistentvolumeclaim import CLAIM


def claim(*, bound=False, **spec):
    """A claim that has all that every claim has."""
    document = {
        "metadata": {"name": "data", "namespace": "default"},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
            **spec,
        },
    }
    CLAIM.default_create(document)
    if bound:
        document["spec"]["volumeName"] = "disk"
        modes = document["spec"]["accessModes"]
        document["status"] = {
            "phase": "Bound",
            "accessModes": modes,
            "capacity": {"storage": "1Gi"},
        }
    CLAIM.default(document)
    return document


def printed(document):
    return {column.name: column.cell(document) for column in CLAIM.columns}


def messages(document, old=None):
    causes = CLAIM.validate(document, old, "kubernetes-admin").causes
    return [f"{cause.field}: {cause.message}" for cause in causes]


def changed(old, **spec):
    document = deepcopy(old)
    document["spec"] |= spec
    CLAIM.default(document)
    return messages(document, old)


def sized(size):
    return {"resources": {"requests": {"storage": size}}}


def test_defaults_of_claims():
    document = claim()
    assert document["metadata"]["finalizers"] == ["kubernetes.io/pvc-protection"]
    assert document["status"] == {"phase": "Pending"}
    assert document["spec"]["volumeMode"] == "Filesystem"
    assert messages(document) == []


def test_data_source_and_data_source_ref_default_from_each_other():
    source = {"kind": "PersistentVolumeClaim", "name": "golden"}
    assert claim(dataSource=source)["spec"]["dataSourceRef"] == source
    assert claim(dataSourceRef=source)["spec"]["dataSource"] == source
    elsewhere = {**source, "namespace": "images"}
    assert "dataSource" not in claim(dataSourceRef=elsewhere)["spec"]


def test_a_pending_claim_shows_no_size():
    assert printed(claim(storageClassName="fast")) == {
        "Status": "Pending",
        "Volume": "",
        "Capacity": "",
        "Access Modes": "",
        "StorageClass": "fast",
        "VolumeAttributesClass": "<unset>",
        "Age": None,
        "VolumeMode": "Filesystem",
    }


def test_a_bound_claim_shows_its_capacity():
    modes = ["ReadWriteMany", "ReadOnlyMany", "ReadWriteOnce"]
    shown = printed(claim(bound=True, accessModes=modes))
    assert shown["Status"] == "Bound"
    assert (shown["Volume"], shown["Capacity"]) == ("disk", "1Gi")
    assert shown["Access Modes"] == "RWO,ROX,RWX"


def test_a_deleted_claim_is_terminating():
    document = claim(bound=True)
    document["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert printed(document)["Status"] == "Terminating"


def test_the_beta_annotation_of_the_class_takes_precedence():
    document = claim(storageClassName="new")
    document["metadata"]["annotations"] = {"volume.beta.kubernetes.io/storage-class": "old"}
    assert printed(document)["StorageClass"] == "old"


@pytest.mark.parametrize(
    ("spec", "cause"),
    [
        (
            {"accessModes": []},
            "spec.accessModes: Required value: at least 1 access mode is required",
        ),
        (
            {"accessModes": ["Mine"]},
            (
                'spec.accessModes: Unsupported value: "Mine": supported values: "ReadOnlyMany", '
                '"ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"'
            ),
        ),
        (
            {"accessModes": ["ReadWriteOnce", "ReadWriteOncePod"]},
            "spec.accessModes: Forbidden: may not use ReadWriteOncePod with other access modes",
        ),
        ({"resources": {}}, "spec.resources[storage]: Required value"),
        (
            sized("0"),
            'spec.resources[storage]: Invalid value: "0": must be greater than zero',
        ),
        (
            {"volumeMode": "Disk"},
            'spec.volumeMode: Unsupported value: "Disk": supported values: "Block", "Filesystem"',
        ),
        (
            {"dataSource": {"kind": "VolumeSnapshot", "name": "s"}},
            (
                'spec.dataSource: Invalid value: "VolumeSnapshot": must be '
                "'PersistentVolumeClaim' when referencing the default apiGroup"
            ),
        ),
        (
            {"dataSource": {"kind": "PersistentVolumeClaim", "name": ""}},
            "spec.dataSource.name: Required value",
        ),
        (
            {"selector": {"matchExpressions": [{"key": "a", "operator": "Is"}]}},
            (
                'spec.selector.matchExpressions[0].operator: Invalid value: "Is": '
                "not a valid selector operator"
            ),
        ),
    ],
)
def test_invalid_claims_are_rejected(spec, cause):
    assert cause in messages(claim(**spec))


def test_a_negative_size_has_two_causes():
    assert messages(claim(**sized("-1Gi"))) == [
        'spec.resources[storage]: Invalid value: "-1Gi": must be greater than or equal to 0',
        'spec.resources[storage]: Invalid value: "-1Gi": must be greater than zero',
    ]


IMMUTABLE = (
    "spec: Forbidden: spec is immutable after creation except resources.requests and "
    "volumeAttributesClassName for bound claims"
)


def test_the_spec_of_a_claim_is_immutable():
    (cause,) = changed(claim(), accessModes=["ReadWriteMany"])
    assert cause == (
        f'{IMMUTABLE}\n- accessModes: ["ReadWriteOnce"]\n+ accessModes: ["ReadWriteMany"]'
    )
    assert changed(claim(), volumeMode="Block") == [
        f'{IMMUTABLE}\n- volumeMode: "Filesystem"\n+ volumeMode: "Block"',
        'volumeMode: Invalid value: "Block": field is immutable',
    ]


def test_the_volume_name_can_be_set_once():
    assert changed(claim(), volumeName="disk") == []
    assert changed(claim(bound=True), volumeName="other")[0].startswith(IMMUTABLE)


def test_the_class_can_be_set_once():
    assert changed(claim(), storageClassName="corral") == []
    assert changed(claim(storageClassName=""), storageClassName="corral")[0].startswith(IMMUTABLE)


def test_only_a_bound_claim_can_be_expanded():
    assert changed(claim(bound=True), **sized("2Gi")) == []
    assert changed(claim(), **sized("2Gi"))[0].startswith(IMMUTABLE)


def test_a_claim_cannot_shrink_below_its_capacity():
    grown = claim(bound=True)
    grown["spec"] |= sized("4Gi")
    assert changed(grown, **sized("2Gi")) == []  # a request that was not fulfilled is withdrawn
    for size in ("1Gi", "500Mi"):
        assert changed(grown, **sized(size)) == [
            "spec.resources.requests.storage: Forbidden: field can not be less than status.capacity"
        ]
