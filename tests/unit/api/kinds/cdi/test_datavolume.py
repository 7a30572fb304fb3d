"""DataVolumes: which are taken, which are refused and in what words."""

from typing import Any

import pytest

from corral.api.kinds import KINDS
from corral.api.kinds.cdi.kinds import DATA_VOLUME

Document = dict[str, Any]
CLAIM: Document = {
    "accessModes": ["ReadWriteOnce"],
    "resources": {"requests": {"storage": "1Gi"}},
}
STORAGE: Document = {"resources": {"requests": {"storage": "1Gi"}}}
BLANK: Document = {"blank": {}}
HTTP = "http://images.example/disk.qcow2"
SHA256 = "sha256:" + "0a" * 32


def volume(**spec: Any) -> Document:
    return {"metadata": {"name": "disk", "namespace": "default"}, "spec": spec}


def messages(**spec: Any) -> list[str]:
    causes = DATA_VOLUME.validate(volume(**spec), None, "kubernetes-admin").causes
    return [f"{cause.field}: {cause.message}" for cause in causes]


def http(**fields: Any) -> list[str]:
    return messages(source={"http": {"url": HTTP} | fields}, storage=STORAGE)


def test_data_volumes_have_the_names_of_cdi():
    kind = KINDS.by_kind("cdi.kubevirt.io", "DataVolume")
    assert kind is DATA_VOLUME
    assert (kind.short, kind.categories, kind.status) == (("dv", "dvs"), ("all",), True)
    assert [column.name for column in kind.columns] == ["Phase", "Progress", "Restarts", "Age"]


@pytest.mark.parametrize(
    "spec",
    [
        {"source": BLANK, "pvc": CLAIM},
        {"source": {"upload": {}}, "storage": STORAGE},
        {"source": {"http": {"url": HTTP, "checksum": SHA256}}, "storage": STORAGE},
        {"source": {"http": {"url": "https://[::1]:8443/a?b=c"}}, "pvc": CLAIM},
        {"source": {"http": {"url": HTTP, "extraHeaders": ["X-Key: 1:2"]}}, "pvc": CLAIM},
        {"source": {"registry": {"url": "docker://quay.example/a/b:c"}}, "storage": STORAGE},
        {"source": {"pvc": {"name": "golden"}}, "storage": {}},
        {"source": {"pvc": {"name": "golden", "namespace": "images"}}, "pvc": CLAIM},
        {"sourceRef": {"kind": "DataSource", "name": "golden"}, "storage": {}},
        {"source": BLANK, "storage": STORAGE, "contentType": "kubevirt"},
    ],
)
def test_valid_data_volumes_are_accepted(spec):
    assert messages(**spec) == []


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"source": BLANK}, "spec.PVC: Missing Data volume PVC"),
        (
            {"source": BLANK, "pvc": CLAIM, "storage": STORAGE},
            (
                "spec.PVC.Storage: Duplicate storage definition, both target storage and target "
                "pvc defined"
            ),
        ),
        (
            {"source": BLANK, "pvc": {"accessModes": ["ReadWriteOnce"]}},
            "spec.PVC.resources.requests.size: PVC size is missing",
        ),
        (
            {"source": BLANK, "storage": {}},
            "spec.Storage.resources.requests.size: Storage size is missing",
        ),
        (
            {"source": BLANK, "storage": {"resources": {"requests": {"storage": "0"}}}},
            "spec.Storage.resources.requests.size: Storage size can't be equal or less than zero",
        ),
        (
            {"source": BLANK, "pvc": CLAIM | {"accessModes": []}},
            "spec.PVC.accessModes: Required value: at least 1 access mode is required",
        ),
        (
            {"source": BLANK, "pvc": CLAIM | {"accessModes": ["ReadWriteOnce", "ReadOnlyMany"]}},
            "spec.PVC.accessModes: PVC multiple accessModes",
        ),
        (
            {"source": BLANK, "storage": STORAGE | {"accessModes": ["Sometimes"]}},
            (
                'spec.Storage.accessModes: Unsupported value: "Sometimes": supported values: '
                '"ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce"'
            ),
        ),
        (
            {"source": BLANK, "storage": STORAGE | {"volumeMode": "Tape"}},
            (
                'spec.Storage.volumeMode: Unsupported value: "Tape": supported values: "Block", '
                '"Filesystem"'
            ),
        ),
        (
            {"storage": STORAGE},
            "spec.source: Data volume should have either Source or SourceRef",
        ),
        (
            {"source": {}, "storage": STORAGE},
            "spec.source: Missing Data volume source",
        ),
        (
            {"source": BLANK | {"upload": {}}, "storage": STORAGE},
            "spec.source: Multiple Data volume sources",
        ),
        (
            {"sourceRef": {"kind": "Secret", "name": "golden"}, "storage": STORAGE},
            (
                "spec.sourceRef.Kind: Unsupported sourceRef kind Secret, currently only DataSource "
                "is supported"
            ),
        ),
        (
            {"sourceRef": {"kind": "DataSource", "name": ""}, "storage": STORAGE},
            "spec.sourceRef.Name: Missing sourceRef name",
        ),
        (
            {"source": {"registry": {"url": "quay.example/a"}}, "storage": STORAGE},
            "spec.source.Registry.URL: Illegal registry source URL scheme quay.example/a",
        ),
        (
            {
                "source": {"registry": {"url": "docker://a", "pullMethod": "mail"}},
                "storage": STORAGE,
            },
            'spec.source.Registry.importMethod: ImportMethod mail is neither pod, node or ""',
        ),
        (
            {"source": {"pvc": {"name": ""}}, "storage": STORAGE},
            "spec.source.PVC: spec.source.PVC source PVC is not valid",
        ),
        (
            {"source": BLANK, "storage": STORAGE, "contentType": "text"},
            "spec.contentType: ContentType not one of: kubevirt, archive",
        ),
        (
            {"source": BLANK, "storage": STORAGE, "contentType": "archive"},
            "spec.contentType: SourceType cannot be blank and the contentType be archive",
        ),
        (
            {
                "source": {"registry": {"url": "docker://a"}},
                "storage": STORAGE,
                "contentType": "archive",
            },
            "spec.contentType: ContentType must be kubevirt when Source is Registry",
        ),
    ],
)
def test_rejections_have_the_messages_of_cdi(spec, message):
    assert messages(**spec) == [message]


@pytest.mark.parametrize(
    ("url", "fault"),
    [
        ("", "source URL is empty"),
        ("disk.img", "Invalid source URL: disk.img"),
        ("http://", "Invalid source URL: http://"),
        ("http://a:b/", "Invalid source URL: http://a:b/"),
        ("http://a/b c", "Invalid source URL: http://a/b c"),
        ("http://a/\r\nHost: b", "Invalid source URL: http://a/\r\nHost: b"),
        ("file:///etc/shadow", "Invalid source URL scheme: file:///etc/shadow"),
        (
            "http://me:secret@a/",
            "source URL holds a user or password; put them into a Secret and name it: secretRef",
        ),
    ],
)
def test_invalid_urls_are_rejected(url, fault):
    assert http(url=url) == [f"spec.source.HTTP.url: spec.source {fault}"]


@pytest.mark.parametrize("checksum", ["sha256:", "sha256:0a", "crc:" + "0" * 8, "0a" * 32])
def test_invalid_checksums_are_rejected(checksum):
    (message,) = http(checksum=checksum)
    assert message.startswith(
        f'spec.source.http.checksum: Invalid value: "{checksum}": must be one of md5:<32 hexa'
    )


@pytest.mark.parametrize("header", ["X-Key", "X Key: 1", "X: 1\r\nY: 2"])
def test_invalid_headers_are_rejected(header):
    (message,) = http(extraHeaders=[header])
    assert message.startswith("spec.source.http.extraHeaders[0]: Invalid value")


@pytest.mark.parametrize("source", ["s3", "gcs", "imageio", "vddk", "snapshot"])
def test_unsupported_sources_are_rejected_with_the_alternative(source):
    (message,) = messages(source={source: {"url": HTTP}}, storage=STORAGE)
    here = f"spec.source.{source}"
    assert message.startswith(f"{here}: {here} is not supported by this version: ")


@pytest.mark.parametrize(
    "spec",
    [
        {"contentType": "archive"},
        {"checkpoints": [{"current": "a", "previous": ""}]},
        {"finalCheckpoint": True},
        {"source": {"registry": {"url": "docker://a", "certConfigMap": "authorities"}}},
        {"source": {"registry": {"url": "docker://a", "platform": {"architecture": "s390x"}}}},
    ],
)
def test_unsupported_fields_are_rejected(spec):
    (message,) = messages(**{"source": {"upload": {}}, "storage": STORAGE} | spec)
    assert "is not supported by this version" in message


def test_fields_without_effect_are_warned_of():
    spec = {
        "source": {"registry": {"url": "docker://a", "pullMethod": "node"}},
        "storage": STORAGE,
        "priorityClassName": "high",
        "preallocation": True,
    }
    assert DATA_VOLUME.validate(volume(**spec), None, "someone").warnings == [
        "spec.priorityClassName has no effect in this version",
        "spec.preallocation has no effect in this version",
        "spec.source.registry.pullMethod has no effect in this version",
    ]


def test_the_spec_is_immutable():
    old = volume(source=BLANK, storage=STORAGE)
    labelled = old | {"metadata": old["metadata"] | {"labels": {"a": "b"}}}
    assert not DATA_VOLUME.validate(labelled, old, "someone").causes
    (cause,) = DATA_VOLUME.validate(volume(source=BLANK, pvc=CLAIM), old, "someone").causes
    assert (cause.field, cause.message) == ("DataVolume.Spec", "Cannot update DataVolume Spec")
