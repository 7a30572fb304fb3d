"""``kubectl explain`` has something to say of everything that is served."""

import json
from collections import defaultdict

import pytest

from corral.api.kind import GroupVersion
from corral.api.kinds import KINDS
from corral.api.openapi import OpenAPI, schemas
from corral.api.openapi.names import struct_name
from corral.server.subresources.catalog import SUBRESOURCES

UNTOLD = "io.k8s.apimachinery.pkg.apis.meta.v1.GroupResource"
"""Kubernetes says nothing of its fields either."""
REFERENCE = "#/components/schemas/"
KIND = "x-kubernetes-group-version-kind"


def test_no_two_types_share_a_name(monkeypatch):
    """The second would be described as the first one is."""
    types = defaultdict(set)

    def recorded(view):
        types[struct_name(view)].add(view)
        return struct_name(view)

    monkeypatch.setattr(schemas, "struct_name", recorded)
    made = schemas.Schemas()
    for kind in KINDS:
        for version in kind.versions:
            made.add_kind(kind, GroupVersion(kind.group, version.name))
    assert len(types) > 200
    assert [views for views in types.values() if len(views) > 1] == []


@pytest.fixture(scope="module")
def documents():
    openapi = OpenAPI(KINDS, SUBRESOURCES)
    openapi.make_v3()
    paths = json.loads(openapi.index().body)["paths"]
    return {path: json.loads(openapi.document(path).body) for path in paths}


def test_every_kind_and_every_field_is_described(documents):
    missing = set()
    for document in documents.values():
        schemas = document["components"]["schemas"]
        for name, schema in schemas.items():
            if name == UNTOLD:
                continue
            if KIND in schema and not schema.get("description"):
                missing.add(name)
            for field, inner in schema.get("properties", {}).items():
                referred = schemas.get(inner.get("$ref", "").removeprefix(REFERENCE), {})
                if not inner.get("description") and not referred.get("description"):
                    missing.add(f"{name}.{field}")
    assert not missing


def test_a_field_of_a_custom_resource_is_explained_once(documents):
    """``kubectl explain`` prints what a field says, and then what its type says of itself.

    Its list of fields says "no description" of a field that leaves it to its type.
    """
    twice, silent = set(), set()
    for document in documents.values():
        for name, schema in document["components"]["schemas"].items():
            if name.startswith("io.kubevirt.") and KIND not in schema and "description" in schema:
                twice.add(name)
            for field, inner in schema.get("properties", {}).items():
                if "io.kubevirt." in inner.get("$ref", ""):
                    silent.add(f"{name}.{field}")
    assert (twice, silent) == (set(), set())
    machine = documents["apis/kubevirt.io/v1"]["components"]["schemas"]["io.kubevirt.Domain"]
    assert machine["properties"]["cpu"] == {
        "description": "the virtual processors: sockets x cores x threads.",
        "allOf": [{"$ref": f"{REFERENCE}io.kubevirt.Cpu"}],
    }


def test_types_of_kubernetes_describe_themselves(documents):
    schemas = documents["api/v1"]["components"]["schemas"]
    bare = [
        name
        for name in schemas
        if name.startswith("io.k8s.") and "description" not in schemas[name]
    ]
    assert bare == []


def test_every_column_of_every_table_is_described():
    columns = {(kind.resource, column.name): column for kind in KINDS for column in kind.columns}
    assert [name for name, column in columns.items() if not column.description] == []


def test_every_operation_has_a_name_of_its_own(documents):
    names = [
        operation["operationId"]
        for document in documents.values()
        for item in document["paths"].values()
        for method, operation in item.items()
        if method != "parameters"
    ]
    assert len(names) == len(set(names))


def test_every_reference_resolves(documents):
    for path, document in documents.items():
        text = json.dumps(document)
        referred = {part.partition('"')[0] for part in text.split(f'"{REFERENCE}')[1:]}
        assert referred <= document["components"]["schemas"].keys(), path
