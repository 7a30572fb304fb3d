"""Kubernetes' rules for metadata, with the messages that the real server gives."""

import json
from typing import Any

import pytest
from hypothesis import given, strategies as st

from corral.api.errors import MAX_CAUSES, UNCHECKED, Cause
from corral.api.kinds import KINDS
from corral.api.metadata import check_labels, check_metadata, metadata_warnings

SUBDOMAIN = "a lowercase RFC 1123 subdomain must consist of"
LABEL = "a lowercase RFC 1123 label must consist of"


def faults(metadata: dict[str, Any], kind: str = "ConfigMap") -> list[tuple[str, str]]:
    row = KINDS.by_kind("", kind)
    assert row is not None
    causes = check_metadata(row, {"metadata": {"name": "x", **metadata}})
    return [(cause.field, cause.message) for cause in causes]


def test_unchanged_metadata_is_not_validated_again():
    row = KINDS.by_kind("", "ConfigMap")
    assert row is not None
    old = {"metadata": {"name": "A", "labels": {"-": ""}, "annotations": {"-": ""}}}
    assert len(check_metadata(row, old)) == 3
    assert check_metadata(row, old, old) == []
    new = {"metadata": old["metadata"] | {"labels": {"-": "", "one": ""}}}
    assert [cause.field for cause in check_metadata(row, new, old)] == ["metadata.labels"]


@pytest.mark.parametrize("name", ["a", "a.b", "0", "my-map.v1", "a" * 253])
def test_names_are_dns_subdomains(name):
    assert faults({"name": name}) == []


@pytest.mark.parametrize("name", ["A", "-a", "a-", "a..b", "a_b", "a/b", "ü", "a" * 254, "a\n"])
def test_invalid_names_are_rejected(name):
    [(field, message)] = faults({"name": name})
    assert field == "metadata.name"
    assert message.startswith(f'Invalid value: "{name[:200]}')


def test_the_message_has_the_format_of_names():
    [(_, message)] = faults({"name": "A"})
    assert SUBDOMAIN in message
    [(_, message)] = faults({"name": "a.b"}, "Namespace")
    assert LABEL in message


def test_a_name_is_required():
    assert faults({"name": ""}) == [
        ("metadata.name", "Required value: name or generateName is required")
    ]


@pytest.mark.parametrize("base", ["test", "virt-launcher-vm-", "a.b-"])
def test_generate_name_may_end_in_a_dash(base):
    assert faults({"generateName": base}) == []


def test_an_invalid_generate_name_is_rejected():
    [(field, _)] = faults({"generateName": "Test-"})
    assert field == "metadata.generateName"


def test_keys_and_values_of_labels_are_validated():
    assert faults({"labels": {"kubevirt.io/domain": "lab05-cirros", "empty": ""}}) == []
    [(field, message)] = faults({"labels": {"a b": "c"}})
    assert (field, message[:24]) == ("metadata.labels", 'Invalid value: "a b": na')
    [(field, message)] = faults({"labels": {"a": "c d"}})
    assert (field, message[:24]) == ("metadata.labels", 'Invalid value: "c d": a ')
    [cause] = check_labels({"a": "-"}, "spec.template.metadata.labels")
    assert cause.field == "spec.template.metadata.labels"


def test_the_size_of_annotations_is_limited():
    assert faults({"annotations": {"Example.com/a": "any\ntext {}"}}) == []
    assert faults({"annotations": {"a": "x" * (256 * 1024 - 1)}}) == []
    assert faults({"annotations": {"a": "x" * (256 * 1024)}}) == [
        ("metadata.annotations", "Too long: may not be more than 262144 bytes")
    ]
    [(field, _)] = faults({"annotations": {"a/b/c": ""}})
    assert field == "metadata.annotations"


def owner(**fields: Any) -> dict[str, Any]:
    return {"apiVersion": "kubevirt.io/v1", "kind": "A", "name": "a", "uid": "1"} | fields


def test_owner_references_are_complete_with_one_controller():
    assert faults({"ownerReferences": [owner(controller=True), owner(name="b")]}) == []
    assert faults({"ownerReferences": [owner(uid="")]}) == [
        ("metadata.ownerReferences[0].uid", 'Invalid value: "": uid must not be empty')
    ]
    assert faults({"ownerReferences": [owner(apiVersion="")]}) == [
        ("metadata.ownerReferences[0].apiVersion", 'Invalid value: "": version must not be empty')
    ]
    [(field, message)] = faults(
        {"ownerReferences": [owner(controller=True), owner(name="b", controller=True)]}
    )
    assert field == "metadata.ownerReferences"
    assert message.endswith("in references for A/a and A/b")


def test_finalizers_are_qualified_names():
    held = ["kubevirt.io/foregroundDeleteVirtualMachine", "foregroundDeletion"]
    assert faults({"finalizers": held}) == []
    [(field, message)] = faults({"finalizers": ["example.com/not a name"]})
    assert field == "metadata.finalizers"
    assert message.startswith('Invalid value: "example.com/not a name": name part must consist of')


def test_orphan_and_foreground_deletion_are_exclusive():
    assert faults({"finalizers": ["orphan", "foregroundDeletion"]}) == [
        (
            "metadata.finalizers",
            (
                "Invalid value: [orphan, foregroundDeletion]: "
                "finalizer orphan and foregroundDeletion cannot be both set"
            ),
        )
    ]


@pytest.mark.parametrize(
    "metadata",
    [
        {"finalizers": ["-"] * 200_000},
        {"finalizers": ["x" * 600_000]},
        {"finalizers": ["orphan", "foregroundDeletion", *map(str, range(100_000))]},
        {"labels": {f"-{number}": "-" for number in range(50_000)}},
        {"labels": {"a": "-" * 600_000}},
        {"annotations": {f"-{number}": "" for number in range(50_000)}},
        {"annotations": {"-" * 600_000: ""}},
        {"ownerReferences": [{}] * 50_000},
        {"ownerReferences": [owner(name="x" * 600_000, controller=True)] * 2},
        {"name": "-" * 600_000},
    ],
)
def test_the_size_of_an_error_is_limited(metadata):
    row = KINDS.by_kind("", "ConfigMap")
    assert row is not None
    causes = check_metadata(row, {"metadata": {"name": "x", **metadata}})
    assert 1 <= len(causes) <= MAX_CAUSES
    assert (causes[-1] == UNCHECKED) is (len(causes) == MAX_CAUSES)
    refusal = row.invalid("x", causes)
    assert len(json.dumps(refusal.status())) < 150_000


def test_too_many_causes_are_limited():
    causes = [Cause("x" * 10_000, "y" * 10_000)] * 1000
    sets = KINDS.by_kind("kubevirt.io", "VirtualMachineInstanceReplicaSet")
    assert sets is not None
    for refusal in (sets.invalid("x", causes), sets.denied("x", causes, creating=True)):
        assert len(json.dumps(refusal.status())) < 500_000
    assert "and 990 more validation errors" in refusal.message


@given(st.text(max_size=30))
def test_any_valid_name_is_a_dns_subdomain(name):
    alphabet = set("abcdefghijklmnopqrstuvwxyz0123456789-.")
    if not faults({"name": name}):
        assert set(name) <= alphabet
        assert all(part and part[0] != "-" and part[-1] != "-" for part in name.split("."))


@pytest.mark.parametrize("finalizer", ["example.com/mine", "kubernetes", "orphan"])
def test_qualified_and_standard_finalizers_are_accepted(finalizer):
    assert faults({"finalizers": [finalizer]}) == []


def test_native_kinds_accept_standard_finalizers_only():
    fault = "name is neither a standard finalizer name nor is it fully qualified"
    assert faults({"finalizers": ["example.com/mine", "example.com"]}) == [
        ("metadata.finalizers[1]", f'Invalid value: "example.com": {fault}')
    ]
    row = KINDS.by_kind("", "ConfigMap")
    assert row is not None
    old = {"metadata": {"name": "x", "finalizers": ["mine"]}}
    new = {"metadata": {"name": "x", "finalizers": ["mine", "example.com/mine"]}}
    assert check_metadata(row, new, old) == []
    assert metadata_warnings(row, old) == []


def test_custom_kinds_accept_unqualified_finalizers_with_a_warning():
    row = KINDS.by_kind("kubevirt.io", "VirtualMachine")
    assert row is not None
    new = {"metadata": {"name": "x", "finalizers": ["mine", "yours", "example.com/mine"]}}
    old = {"metadata": {"name": "x", "finalizers": ["yours"]}}
    assert check_metadata(row, new) == []
    (warning,) = metadata_warnings(row, new, old)
    assert warning == (
        'metadata.finalizers: "mine": prefer a domain-qualified finalizer name including a path '
        "(/) to avoid accidental conflicts with other finalizer writers"
    )
    assert metadata_warnings(row, new, new) == []
