import json
import re
from dataclasses import replace

import pytest
from lightkube.models.core_v1 import Namespace, Pod
from lightkube.models.policy_v1 import Eviction

from corral.api.kind import Kind, Scale, Version
from corral.api.kinds.table import KindTable
from corral.api.object import IntOrString, Object, Quantity, Struct
from corral.api.openapi import OpenAPI
from corral.api.protobuf.wire import fields
from corral.api.subresources import Subresource

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
        Kind(
            group="",
            name="Set",
            plural="sets",
            versions=V1,
            view=Pod,
            native=True,
            scale=Scale(),
        ),
        THING,
    )
)
BELOW = (
    Subresource(
        group="", version="v1", plural="pods", name="log", response_kind=("", "v1", "Pod"),
        query={"follow": "Go on."},
    ),
    Subresource(
        group="", version="v1", plural="pods", name="eviction", verbs=("create",),
        response_kind=("policy", "v1", "Eviction"), request=Eviction, response=Eviction,
    ),
    Subresource(
        group="sub.example.io",
        version="v1",
        plural="things",
        name="port",
        path_parameters=("port",),
        response_kind=("sub.example.io", "v1", "Thing"),
    ),
)  # fmt: skip
OPENAPI = OpenAPI(KINDS, BELOW)
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
    assert list(paths) == [
        "api/v1", "apis/example.io/v1", "apis/example.io/v1alpha1", "apis/sub.example.io/v1",
    ]  # fmt: skip
    assert re.fullmatch(
        r"/openapi/v3/apis/example\.io/v1\?hash=[0-9A-F]{128}",
        paths["apis/example.io/v1"]["serverRelativeURL"],
    )
    assert OPENAPI.document("apis/nosuch/v1") is None


@pytest.mark.parametrize("where", [CORE, EXAMPLE])
def test_every_reference_resolves(where):
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
    assert thing["properties"]["spec"]["description"] == "what it shall be."
    (metadata,) = thing["properties"]["metadata"]["allOf"]
    assert metadata == {
        "$ref": "#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
    }
    assert all(
        field.get("description") for field in thing["properties"].values() if "$ref" not in field
    )
    (spec,) = (schema for name, schema in schemas.items() if name.endswith(".Spec"))
    assert spec["properties"]["memory"] == {
        "description": "how much.",
        "allOf": [{"$ref": "#/components/schemas/io.k8s.apimachinery.pkg.api.resource.Quantity"}],
    }
    assert "io.example.v1alpha1.ThingList" in schemas


def test_native_kinds_have_kubernetes_schema_names_and_patch_keys():
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


def operations(where):
    return {
        (path, method): operation
        for path, item in document(where)["paths"].items()
        for method, operation in item.items()
        if method != "parameters"
    }


def test_operations_have_parameters_and_media_types():
    paths = document(EXAMPLE)["paths"]
    home = "/apis/example.io/v1alpha1/namespaces/{namespace}/things"
    assert set(paths) == {home, f"{home}/{{name}}", "/apis/example.io/v1alpha1/things"}
    patch = paths[f"{home}/{{name}}"]["patch"]
    assert {"dryRun", "fieldManager", "fieldValidation", "force"} == {
        parameter["name"] for parameter in patch["parameters"]
    }
    assert "application/apply-patch+yaml" in patch["requestBody"]["content"]
    assert "application/strategic-merge-patch+json" not in patch["requestBody"]["content"]
    for operation in operations(EXAMPLE).values():
        assert operation["x-kubernetes-group-version-kind"]["kind"] == "Thing"
    core = document(CORE)["paths"]
    assert "/api/v1/namespaces/{name}/status" in core
    strategic = core["/api/v1/namespaces/{name}"]["patch"]["requestBody"]["content"]
    assert "application/strategic-merge-patch+json" in strategic


def test_operation_ids_are_kubernetes():
    core = operations(CORE)
    pods = "/api/v1/namespaces/{namespace}/pods"
    assert core[pods, "get"]["operationId"] == "listCoreV1NamespacedPod"
    assert core[pods, "delete"]["operationId"] == "deleteCoreV1CollectionNamespacedPod"
    assert core["/api/v1/pods", "get"]["operationId"] == "listCoreV1PodForAllNamespaces"
    assert core["/api/v1/namespaces/{name}", "put"]["operationId"] == "replaceCoreV1Namespace"
    status = core[f"{pods}/{{name}}/status", "patch"]
    assert status["operationId"] == "patchCoreV1NamespacedPodStatus"
    log = core[f"{pods}/{{name}}/log", "get"]
    assert log["operationId"] == "connectCoreV1GetNamespacedPodLog"
    assert log["tags"] == ["core_v1"]
    names = [each["operationId"] for each in (*core.values(), *operations(EXAMPLE).values())]
    assert len(names) == len(set(names))


def test_subresources_are_described():
    core = operations(CORE)
    scale = core["/api/v1/namespaces/{namespace}/sets/{name}/scale", "put"]
    reference = {"$ref": "#/components/schemas/io.k8s.api.autoscaling.v1.Scale"}
    assert scale["requestBody"]["content"]["application/json"]["schema"] == reference
    assert scale["x-kubernetes-group-version-kind"] == {
        "group": "autoscaling", "version": "v1", "kind": "Scale",
    }  # fmt: skip
    log = core["/api/v1/namespaces/{namespace}/pods/{name}/log", "get"]
    assert [parameter["name"] for parameter in log["parameters"]] == ["follow"]
    assert log["x-kubernetes-action"] == "connect"
    assert "requestBody" not in log
    eviction = core["/api/v1/namespaces/{namespace}/pods/{name}/eviction", "post"]
    assert eviction["operationId"] == "createCoreV1NamespacedPodEviction"
    assert eviction["requestBody"]["required"]
    assert {"dryRun", "fieldManager"} <= {each["name"] for each in eviction["parameters"]}


def test_subresources_in_another_group_have_their_own_document():
    path = "/apis/sub.example.io/v1/namespaces/{namespace}/things/{name}/port"
    assert set(operations("apis/sub.example.io/v1")) == {
        (path, "get"), (f"{path}/{{port}}", "get"),
    }  # fmt: skip
    assert "apis/sub.example.io/v1" in json.loads(OPENAPI.index().body)["paths"]


def test_a_custom_resource_has_its_own_schema():
    spec = {"type": "object", "properties": {"a": {"type": "object", "properties": {}}}}
    schemas = {"v1": {"type": "object", "properties": {"spec": spec | {"required": []}}}}
    brought = Kind(
        group="example.io", name="Brought", plural="broughts", versions=V1, view=Thing,
        schemas=schemas,
    )  # fmt: skip
    openapi = OpenAPI(KindTable((brought,)))
    openapi.make_v3()
    expected = json.loads(openapi.document("apis/example.io/v1").body)["components"]["schemas"]
    brought = expected["io.example.v1.Brought"]
    assert set(brought["properties"]) == {"apiVersion", "kind", "metadata", "spec"}
    (metadata,) = brought["properties"]["metadata"]["allOf"]
    assert metadata["$ref"].endswith(".ObjectMeta")
    assert brought["properties"]["spec"] == {
        "type": "object",
        "properties": {"a": {"type": "object"}},
    }
    assert schemas["v1"]["properties"]["spec"]["required"] == []


def test_no_keyword_is_empty():
    """Go leaves out what is empty: who reads and writes a document would get another."""
    for path in json.loads(OPENAPI.index().body)["paths"]:
        text = OPENAPI.document(path).body
        for word in (b"parameters", b"properties", b"required"):
            assert b'"%b":[]' % word not in text
            assert b'"%b":{}' % word not in text


def test_both_encodings_of_v2_are_equivalent():
    whole = json.loads(OPENAPI.whole(protobuf=False).body)
    message = dict(fields(OPENAPI.whole(protobuf=True).body))
    paths = [dict(fields(item))[1] for _, item in fields(message[8])]
    definitions = [dict(fields(item))[1] for _, item in fields(message[9])]
    assert [path.decode() for path in paths] == list(whole["paths"])
    assert [name.decode() for name in definitions] == list(whole["definitions"])
    assert whole["definitions"]["io.example.v1.Thing"]["properties"]["spec"] == {
        "description": "what it shall be.",
        "$ref": "#/definitions/io.kubevirt.Spec",
    }


def test_types_unknown_to_old_clients_are_unconstrained():
    old = Version(name="v1alpha1", read=lambda document: None)
    openapi = OpenAPI(KindTable((replace(THING, versions=(*V1, old)),)))
    openapi.make_v3()
    openapi.make_v2()
    expected = json.loads(openapi.whole(protobuf=False).body)["definitions"]
    assert expected["io.example.v1alpha1.Thing"]["properties"]["spec"] == {
        "description": "what it shall be.",
        "x-kubernetes-preserve-unknown-fields": True,
    }
    assert "$ref" in expected["io.example.v1.Thing"]["properties"]["spec"]
    new = json.loads(openapi.document(EXAMPLE).body)["components"]["schemas"]
    assert "allOf" in new["io.example.v1alpha1.Thing"]["properties"]["spec"]


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
