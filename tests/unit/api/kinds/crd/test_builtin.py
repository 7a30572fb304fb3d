"""Definitions of our own kinds: valid, and equal to the kinds of the embedded server."""

import copy

import pytest

from corral.api.kinds import KINDS
from corral.api.kinds.crd import builtin, naming
from corral.api.kinds.crd.custom_kinds import kind_of
from corral.api.kinds.crd.definition import DEFINITION
from corral.api.kinds.crd.well_known import BUILT_IN
from corral.api.kinds.kubevirt.kinds import (
    POOL,
    REPLICA_SET,
    VIRTUAL_MACHINE,
    VIRTUAL_MACHINE_INSTANCE,
)
from corral.api.schema import schema_for

DEFINED = [kind for kind in KINDS if builtin.has_definition(kind)]
STRUCTURAL = {
    *("type", "format", "pattern", "enum", "minimum", "maximum", "maxItems"),
    *("required", "properties", "items", "additionalProperties", "nullable", "default"),
    *("x-kubernetes-int-or-string", "x-kubernetes-preserve-unknown-fields"),
    *("x-kubernetes-list-type", "x-kubernetes-list-map-keys", "x-kubernetes-map-type"),
}
"""The keywords of our schemas, all of which structural schemas may have."""
LARGEST = 200_000
"""Bytes, far enough below 262144: kubectl apply keeps the whole definition in an annotation."""


def stored(kind):
    """The definition as a server stores it, established."""
    document = copy.deepcopy(builtin.portable_definition_of(kind))
    schema = schema_for(DEFINITION)
    assert schema.prune(document) == []
    assert schema.check(document) == []
    DEFINITION.default_create(document)
    DEFINITION.default(document)
    verdict = DEFINITION.validate(document, None, "kubernetes-admin")
    assert (verdict.causes, verdict.warnings) == ([], [])
    document["metadata"]["generation"] = 1
    document["status"] = naming.updated_status(document, naming.UsedNames(), "2026-01-01T00:00:00Z")
    return document


def schemas(schema):
    yield schema
    inner = [*(schema.get("properties") or {}).values()]
    inner += [schema[word] for word in ("items", "additionalProperties") if word in schema]
    for each in inner:
        if isinstance(each, dict):
            yield from schemas(each)


@pytest.mark.parametrize("kind", DEFINED, ids=repr)
def test_every_definition_is_valid_and_defines_the_kind(kind):
    document = stored(kind)
    made = kind_of(document)
    assert (made.group, made.plural, made.name) == (kind.group, kind.plural, kind.name)
    assert (made.singular, made.short) == (kind.singular, kind.short)
    assert (made.categories, made.namespaced) == (kind.categories, kind.namespaced)
    assert (made.status, made.scale) == (kind.status, kind.scale)
    assert made.version == kind.version
    assert [each.name for each in made.versions] == [
        each.name for each in kind.versions if each.name != "v1alpha2"
    ]
    assert len(str(document)) < LARGEST


@pytest.mark.parametrize("kind", DEFINED, ids=repr)
def test_schemas_have_only_keywords_and_formats_of_kubernetes(kind):
    for version in builtin.portable_definition_of(kind)["spec"]["versions"]:
        for each in schemas(version["schema"]["openAPIV3Schema"]):
            assert each.keys() <= STRUCTURAL
            assert each.get("format", "int32") in ("int32", "int64", "date-time", "byte", "double")


@pytest.mark.parametrize("kind", DEFINED, ids=repr)
def test_columns_are_those_of_the_kind(kind):
    document = {
        "metadata": {"creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"replicas": 3},
        "status": {
            "phase": "Running",
            "replicas": 2,
            "readyReplicas": 1,
            "interfaces": [{"ipAddress": "10.32.0.2"}, {"ipAddress": "10.32.0.3"}],
            "conditions": [
                {"type": "Paused", "status": "False"},
                {"type": "Ready", "status": "True"},
            ],
        },
    }
    made = kind_of(stored(kind))
    assert all(column.json_path for column in kind.columns)
    ours = kind.columns or made.columns  # a definition without columns has the age
    for wide, narrow in zip(made.columns, ours, strict=True):
        assert (wide.name, wide.type, wide.priority) == (narrow.name, narrow.type, narrow.priority)
        assert wide.cell(document) == narrow.cell(document)


def test_subresources_are_kubevirts():
    for kind in (REPLICA_SET, POOL):
        for version in builtin.portable_definition_of(kind)["spec"]["versions"]:
            assert version["subresources"] == {
                "status": {},
                "scale": {
                    "specReplicasPath": ".spec.replicas",
                    "statusReplicasPath": ".status.replicas",
                    "labelSelectorPath": ".status.labelSelector",
                },
            }
    (version, *_) = builtin.portable_definition_of(VIRTUAL_MACHINE_INSTANCE)["spec"]["versions"]
    assert "subresources" not in version


def test_versions_that_code_converts_are_for_the_embedded_server():
    def versions(definition):
        return [(each["name"], each["storage"]) for each in definition["spec"]["versions"]]

    assert versions(builtin.portable_definition_of(REPLICA_SET)) == [
        ("v1", True), ("v1alpha3", False),
    ]  # fmt: skip
    assert versions(builtin.definition_of(REPLICA_SET))[-1] == ("v1alpha2", False)
    assert versions(builtin.portable_definition_of(VIRTUAL_MACHINE)) == [
        ("v1", True), ("v1alpha3", False),
    ]  # fmt: skip
    assert versions(builtin.portable_definition_of(POOL)) == [
        ("v1beta1", True),
        ("v1alpha1", False),
    ]


def test_only_definitions_of_the_embedded_server_are_marked():
    assert builtin.definition_of(POOL)["metadata"]["annotations"] == {BUILT_IN: "true"}
    assert builtin.portable_definition_of(POOL)["metadata"] == {
        "name": "virtualmachinepools.pool.kubevirt.io"
    }
