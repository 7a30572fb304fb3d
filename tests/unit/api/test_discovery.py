import pytest
from lightkube.models.core_v1 import Namespace, Pod

from corral.api.discovery import Discovery, api_versions, content_type
from corral.api.kind import Kind, Scale, Version
from corral.api.kinds import KINDS as SERVED
from corral.api.kinds.table import KindTable
from corral.api.subresources import Subresource

V1 = (Version(name="v1"),)
THING = Kind(
    group="example.io",
    name="Thing",
    plural="things",
    singular="thing",
    short=("th",),
    categories=("all",),
    versions=(Version(name="v1"), Version(name="v1alpha1", deprecated=True)),
    view=Pod,
    scale=Scale(),
)
KINDS = KindTable(
    (
        Kind(group="", name="Pod", plural="pods", versions=V1, view=Pod, native=True),
        Kind(
            group="",
            name="Namespace",
            plural="namespaces",
            versions=V1,
            view=Namespace,
            namespaced=False,
            status=False,
            native=True,
        ),
        THING,
    )
)
DISCOVERY = Discovery(
    KINDS,
    (
        Subresource(
            group="", version="v1", plural="pods", name="log", response_kind=("", "v1", "Pod")
        ),
        Subresource(
            group="subresources.example.io",
            version="v1",
            plural="things",
            name="console",
            response_kind=("subresources.example.io", "v1", "Thing"),
        ),
    ),
)


def test_the_old_form_of_the_groups():
    assert api_versions("127.0.0.1:6443") == {
        "kind": "APIVersions",
        "versions": ["v1"],
        "serverAddressByClientCIDRs": [
            {"clientCIDR": "0.0.0.0/0", "serverAddress": "127.0.0.1:6443"}
        ],
    }
    groups = DISCOVERY.document("/apis")["groups"]
    assert [group["name"] for group in groups] == ["example.io", "subresources.example.io"]
    assert DISCOVERY.document("/apis/example.io") == {
        "kind": "APIGroup",
        "apiVersion": "v1",
        "name": "example.io",
        "versions": [
            {"groupVersion": "example.io/v1", "version": "v1"},
            {"groupVersion": "example.io/v1alpha1", "version": "v1alpha1"},
        ],
        "preferredVersion": {"groupVersion": "example.io/v1", "version": "v1"},
    }


def test_the_old_form_of_the_resources():
    core = DISCOVERY.document("/api/v1")
    assert core["groupVersion"] == "v1"
    assert [resource["name"] for resource in core["resources"]] == [
        "pods",
        "pods/status",
        "pods/log",
        "namespaces",
    ]
    things = DISCOVERY.document("/apis/example.io/v1alpha1")["resources"]
    assert things[0] == {
        "name": "things",
        "singularName": "thing",
        "namespaced": True,
        "kind": "Thing",
        "verbs": [
            *("create", "delete", "deletecollection", "get"),
            *("list", "patch", "update", "watch"),
        ],
        "shortNames": ["th"],
        "categories": ["all"],
        "storageVersionHash": "qVMZDgNieR4=",
    }
    assert things[2] == {
        "name": "things/scale",
        "singularName": "",
        "namespaced": True,
        "group": "autoscaling",
        "version": "v1",
        "kind": "Scale",
        "verbs": ["get", "patch", "update"],
    }
    orphans = DISCOVERY.document("/apis/subresources.example.io/v1")["resources"]
    assert [resource["name"] for resource in orphans] == ["things/console"]


def test_the_hash_of_the_version_in_which_a_kind_is_stored_is_kubernetes_own():
    discovery = Discovery(SERVED)
    core, scaling, events, reviews = (
        "/api/v1",
        "autoscaling",
        "events.k8s.io",
        "authorization.k8s.io",
    )
    hashes = {
        (path, resource["name"]): resource.get("storageVersionHash")
        for path in (core, *(f"/apis/{group}/v1" for group in (scaling, events, reviews)))
        for resource in discovery.document(path)["resources"]
    }
    assert hashes[core, "pods"] == "xPOwRZ+Yhw8="
    assert hashes[core, "pods/status"] is None
    assert hashes[core, "events"] == hashes["/apis/events.k8s.io/v1", "events"] == "r2yiGXH7wu8="
    autoscalers = hashes["/apis/autoscaling/v1", "horizontalpodautoscalers"]
    assert autoscalers == "qwQve8ut294="  # of autoscaling/v2
    assert hashes["/apis/authorization.k8s.io/v1", "subjectaccessreviews"] is None


@pytest.mark.parametrize(
    "path", ["/api/v2", "/apis/nosuch", "/apis/example.io/v9", "/", "/apis/a/b/c", "/healthz"]
)
def test_other_paths_have_no_document(path):
    assert DISCOVERY.document(path) is None
    assert DISCOVERY.aggregated(path) is None


def test_the_aggregated_form():
    core = DISCOVERY.aggregated("/api")
    assert core["kind"] == "APIGroupDiscoveryList"
    assert core["apiVersion"] == "apidiscovery.k8s.io/v2"
    assert [item["metadata"] for item in core["items"]] == [{}]
    pods, namespaces = core["items"][0]["versions"][0]["resources"]
    assert pods["scope"] == "Namespaced"
    assert [below["subresource"] for below in pods["subresources"]] == ["status", "log"]
    assert namespaces["scope"] == "Cluster"
    assert "subresources" not in namespaces

    example, below = DISCOVERY.aggregated("/apis", "v2beta1")["items"]
    assert example["metadata"] == {"name": "example.io"}
    assert [version["version"] for version in example["versions"]] == ["v1", "v1alpha1"]
    thing = example["versions"][1]["resources"][0]
    assert thing["responseKind"] == {"group": "example.io", "version": "v1alpha1", "kind": "Thing"}
    assert thing["subresources"][1] == {
        "subresource": "scale",
        "responseKind": {"group": "autoscaling", "version": "v1", "kind": "Scale"},
        "verbs": ["get", "patch", "update"],
    }
    assert below["versions"][0]["resources"][0]["verbs"] == []


def test_a_kind_added_later_is_discovered_at_once():
    kinds = KindTable()
    discovery = Discovery(kinds)
    assert discovery.document("/apis")["groups"] == []
    kinds.add(THING)
    assert discovery.document("/apis")["groups"][0]["name"] == "example.io"


def test_documents_are_kept_until_kinds_change():
    kinds = KindTable((THING,))
    discovery = Discovery(kinds)
    kept = discovery.find("/apis", "v2")
    assert len(kept.tag) == 128
    assert kept.tag != discovery.find("/api", "v2").tag
    assert discovery.find("/apis", "v2") is kept
    assert discovery.find("/apis/other.io") is None
    kinds.add(
        Kind(group="other.io", name="More", plural="mores", versions=V1, view=Pod, native=True)
    )
    assert discovery.find("/apis", "v2").tag != kept.tag
    assert b"mores" in discovery.find("/apis", "v2").body
    assert discovery.find("/apis/other.io") is not None


def test_media_types():
    assert content_type("v2") == (
        "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
    )
