import json
import re

import pytest
from lightkube.models.core_v1 import Namespace, Pod

from corral.api.kind import Kind, Version
from corral.api.kinds.table import KindTable
from corral.api.object import IntOrString, Object, Quantity, Struct
from corral.api.openapi import OpenAPI

V1 = (Version(name="v1"),)


class Spec(Struct, kw_only=True):
    """What it shall be.

    memory: how much.
    port: where.
    """

    memory: Quantity
    port: IntOrString | None = None


class Thing(Object, kw_only=True):
    """A thing.

    spec: what it shall be.
    """

    spec: Spec


THING = Kind(
    group="example.io",
    name="Thing",
    plural="things",
    versions=(Version(name="v1"), Version(name="v1alpha1")),
    view=Thing,
    status=False,
)
POD = Kind(group="", name="Pod", plural="pods", versions=V1, view=Pod, native=True)
KINDS = KindTable(
    (
        POD,
        Kind(
            group="",
            name="Namespace",
            plural="namespaces",
            versions=V1,
            view=Namespace,
            namespaced=False,
            native=True,
        ),
        THING,
    )
)
OPENAPI = OpenAPI(KINDS)
CORE = "api/v1"
EXAMPLE = "apis/example.io/v1alpha1"


@pytest.fixture(autouse=True, scope="module")
def made():
    OPENAPI.make_v3()
    OPENAPI.make_v2()


def document(where):
    return json.loads(OPENAPI.document(where).body)


def test_the_index_has_every_document_with_its_hash():
    paths = json.loads(OPENAPI.index().body)["paths"]
    assert list(paths) == ["api/v1", "apis/example.io/v1", "apis/example.io/v1alpha1"]
    assert re.fullmatch(
        r"/openapi/v3/apis/example\.io/v1\?hash=[0-9A-F]{128}",
        paths["apis/example.io/v1"]["serverRelativeURL"],
    )
    assert OPENAPI.document("apis/nosuch/v1") is None


@pytest.mark.parametrize("where", [CORE, EXAMPLE])
def test_every_reference_leads_somewhere(where):
    body = OPENAPI.document(where).body.decode()
    schemas = json.loads(body)["components"]["schemas"]
    references = set(re.findall(r'"\$ref":"#/components/schemas/([^"]+)"', body))
    assert references <= schemas.keys()
    assert "$struct" not in body
    assert all(schemas.values())


def test_a_kind_is_found_by_its_group_version_and_kind():
    schemas = document(EXAMPLE)["components"]["schemas"]
    thing = schemas["io.example.v1alpha1.Thing"]
    assert thing["x-kubernetes-group-version-kind"] == [
        {"group": "example.io", "version": "v1alpha1", "kind": "Thing"}
    ]
    assert thing["description"] == "A thing."
    assert thing["required"] == ["spec"]
    assert list(thing["properties"]["spec"]) == ["$ref"]  # Spec says the same of itself
    assert thing["properties"]["metadata"] == {
        "$ref": "#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
    }
    (spec,) = (schema for name, schema in schemas.items() if name.endswith(".Spec"))
    assert spec["properties"]["memory"] == {
        "description": "how much.",
        "allOf": [{"$ref": "#/components/schemas/io.k8s.apimachinery.pkg.api.resource.Quantity"}],
    }
    assert "io.example.v1alpha1.ThingList" in schemas


def test_kubernetes_own_kinds_have_their_known_names_and_patch_keys():
    schemas = document(CORE)["components"]["schemas"]
    assert "io.k8s.api.core.v1.Pod" in schemas
    spec = schemas["io.k8s.api.core.v1.PodSpec"]["properties"]
    assert spec["containers"]["x-kubernetes-patch-merge-key"] == "name"
    assert spec["containers"]["x-kubernetes-patch-strategy"] == "merge"
    assert spec["volumes"]["x-kubernetes-patch-strategy"] == "merge,retainKeys"
    assert "x-kubernetes-patch-strategy" not in spec["tolerations"]
    container = schemas["io.k8s.api.core.v1.Container"]["properties"]
    assert container["ports"]["x-kubernetes-patch-merge-key"] == "containerPort"
    meta = schemas["io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"]["properties"]
    assert meta["finalizers"]["x-kubernetes-patch-strategy"] == "merge"
    assert "x-kubernetes-patch-merge-key" not in meta["finalizers"]


def test_operations_say_what_they_take():
    paths = document(EXAMPLE)["paths"]
    home = "/apis/example.io/v1alpha1/namespaces/{namespace}/things"
    assert set(paths) == {home, f"{home}/{{name}}", "/apis/example.io/v1alpha1/things"}
    patch = paths[f"{home}/{{name}}"]["patch"]
    assert {"dryRun", "fieldManager", "fieldValidation"} == {
        parameter["name"] for parameter in patch["parameters"]
    }
    assert "application/strategic-merge-patch+json" not in patch["requestBody"]["content"]
    for path in paths.values():
        for method, operation in path.items():
            if method != "parameters":
                assert operation["x-kubernetes-group-version-kind"]["kind"] == "Thing"
    core = document(CORE)["paths"]
    assert "/api/v1/namespaces/{name}/status" in core
    strategic = core["/api/v1/namespaces/{name}"]["patch"]["requestBody"]["content"]
    assert "application/strategic-merge-patch+json" in strategic


def test_documents_are_kept_until_their_kinds_change():
    kinds = KindTable((THING, POD))
    openapi = OpenAPI(kinds)
    assert not openapi.has_v3
    openapi.make_v3()
    openapi.make_v2()
    first, other, whole = openapi.document(EXAMPLE), openapi.document(CORE), openapi.whole
    assert openapi.has_v3
    assert openapi.has_v2
    before = whole(protobuf=False)
    more = Kind(
        group="example.io", name="More", plural="mores", versions=THING.versions, view=Thing
    )
    kinds.add(more)
    assert not openapi.has_v3
    assert not openapi.has_v2
    openapi.make_v3()
    openapi.make_v2()
    second = openapi.document(EXAMPLE)
    assert second.tag != first.tag
    assert b"io.example.v1alpha1.More" in second.body
    assert openapi.document(CORE) is other  # what did not change is not made again
    assert whole(protobuf=False).tag != before.tag
    assert b"io.example.v1alpha1.More" in whole(protobuf=True).body
