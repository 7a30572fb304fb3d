"""Discovery: paths, groups, resources and their schemas."""

import contextlib
import json
import re

import pytest
from tests.conformance.api import KUBEVIRT

pytestmark = pytest.mark.conformance

APPROVED = "https://github.com/kubernetes/enhancements/pull/1"
AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
PLURALS = {
    "api/v1": {
        "configmaps", "endpoints", "events", "limitranges", "namespaces", "nodes",
        "persistentvolumeclaims", "persistentvolumes", "pods", "podtemplates",
        "replicationcontrollers", "resourcequotas", "secrets", "serviceaccounts", "services",
    },
    "apis/coordination.k8s.io/v1": {"leases"},
    "apis/discovery.k8s.io/v1": {"endpointslices"},
    "apis/events.k8s.io/v1": {"events"},
    "apis/apps/v1": {
        "controllerrevisions", "daemonsets", "deployments", "replicasets", "statefulsets",
    },
    "apis/kubevirt.io/v1": {
        "kubevirts", "virtualmachineinstances", "virtualmachineinstancereplicasets",
        "virtualmachines", "virtualmachineinstancemigrations", "virtualmachineinstancepresets",
    },
    "apis/metrics.k8s.io/v1beta1": {"nodes", "pods"},
    "apis/networking.k8s.io/v1": {
        "ingressclasses", "ingresses", "ipaddresses", "networkpolicies", "servicecidrs",
    },
}  # fmt: skip


@pytest.mark.parametrize("path", ["/api", "/apis"])
def test_aggregated_discovery_is_cached_by_its_etag(api, path):
    headers = {"Accept": f"{AGGREGATED},application/json"}
    answer = api.get(path, headers=headers)
    assert answer.headers["content-type"] == AGGREGATED
    assert answer.headers["vary"] == "Accept"
    tag = answer.headers["etag"]
    assert re.fullmatch('"[0-9A-Fa-f]+"', tag)
    again = api.get(path, headers=headers | {"If-None-Match": tag})
    assert (again.status_code, again.content) == (304, b"")
    assert api.get(path, headers=headers | {"If-None-Match": '"0"'}).status_code == 200
    assert answer.json()["kind"] == "APIGroupDiscoveryList"


def test_aggregated_discovery_names_everything(api):
    groups = api.get("/apis", headers={"Accept": AGGREGATED}).json()["items"]
    kubevirt = next(one for one in groups if one["metadata"]["name"] == "kubevirt.io")
    assert [one["version"] for one in kubevirt["versions"]] == ["v1", "v1alpha3", "v1alpha2"]
    resources = {one["resource"]: one for one in kubevirt["versions"][0]["resources"]}
    replica_sets = resources["virtualmachineinstancereplicasets"]
    assert replica_sets["responseKind"] == {
        "group": "kubevirt.io", "version": "v1", "kind": "VirtualMachineInstanceReplicaSet",
    }  # fmt: skip
    assert replica_sets["scope"] == "Namespaced"
    assert replica_sets["singularResource"] == "virtualmachineinstancereplicaset"
    assert replica_sets["shortNames"] == ["vmirs", "vmirss"]
    assert replica_sets["categories"] == ["all"]
    below = {one["subresource"]: one for one in replica_sets["subresources"]}
    assert below["scale"]["responseKind"] == {
        "group": "autoscaling", "version": "v1", "kind": "Scale",
    }  # fmt: skip
    assert set(below["scale"]["verbs"]) == {"get", "patch", "update"}
    assert "status" in below
    assert "subresources" not in resources["virtualmachineinstances"] or "status" not in {
        one["subresource"] for one in resources["virtualmachineinstances"]["subresources"]
    }


def test_plain_discovery(api):
    assert api.get_document("/api")["versions"] == ["v1"]
    groups = api.get_document("/apis")
    assert groups["kind"] == "APIGroupList"
    kubevirt = next(one for one in groups["groups"] if one["name"] == "kubevirt.io")
    assert kubevirt["preferredVersion"] == {"groupVersion": "kubevirt.io/v1", "version": "v1"}
    group = api.get_document("/apis/kubevirt.io")
    assert (group["kind"], group["name"]) == ("APIGroup", "kubevirt.io")


@pytest.mark.parametrize("group_version", PLURALS)
def test_plain_resources(api, group_version):
    resources = api.get_document(f"/{group_version}")
    assert resources["kind"] == "APIResourceList"
    assert resources["groupVersion"] == group_version.split("/", 1)[1]
    named = {one["name"] for one in resources["resources"] if "/" not in one["name"]}
    assert named == PLURALS[group_version]
    for one in resources["resources"]:
        assert one["kind"]
        assert one["verbs"]
        assert isinstance(one["namespaced"], bool)


@pytest.mark.parametrize("group_version", PLURALS)
def test_every_resource_is_served(api, group_version):
    for plural in PLURALS[group_version]:
        assert api.get_document(f"/{group_version}/{plural}")["kind"].endswith("List")


def test_schemas_are_found_by_their_hash(api):
    paths = api.get_document("/openapi/v3")["paths"]
    assert set(PLURALS) <= set(paths)
    url = paths["apis/kubevirt.io/v1"]["serverRelativeURL"]
    assert re.fullmatch(r"/openapi/v3/apis/kubevirt.io/v1\?hash=[0-9A-F]+", url)
    answer = api.get(url)
    assert "immutable" in answer.headers["cache-control"]
    tag = answer.headers["etag"]
    assert api.get(url, headers={"If-None-Match": tag}).status_code == 304
    wrong = api.get("/openapi/v3/apis/kubevirt.io/v1?hash=00")
    assert (wrong.status_code, wrong.headers["location"]) == (301, url)
    assert api.get("/openapi/v3/apis/kubevirt.io/v1").json() == answer.json()


@pytest.mark.parametrize("group_version", [*PLURALS, "apis/kubevirt.io/v1alpha3"])
def test_schemas_have_the_extensions_of_clients(api, group_version):
    document = api.get_document(f"/openapi/v3/{group_version}")
    assert document["openapi"].startswith("3.0")
    schemas = document["components"]["schemas"]
    kinds = {
        of["kind"]
        for schema in schemas.values()
        for of in schema.get("x-kubernetes-group-version-kind", ())
    }
    patches = [item["patch"] for item in document["paths"].values() if "patch" in item]
    assert {patch["x-kubernetes-group-version-kind"]["kind"] for patch in patches} <= kinds
    for patch in patches:
        parameters = {one["name"] for one in patch["parameters"]}
        assert {"fieldValidation", "dryRun"} <= parameters


def test_openapi_v2_has_the_same_kinds(api):
    whole = api.get_document("/openapi/v2")
    assert whole["swagger"] == "2.0"
    listed = {path.strip("/") for path in whole["paths"]}
    for place in PLURALS:
        document = api.get_document(f"/openapi/v3/{place}")
        assert {path.strip("/") for path in document["paths"]} <= listed
        assert document["components"]["schemas"].keys() <= whole["definitions"].keys()


def test_references_of_schemas_resolve(api):
    for path in api.get_document("/openapi/v3")["paths"]:
        document = api.get_document(f"/openapi/v3/{path}")
        schemas = document["components"]["schemas"]
        referred = set(re.findall(r"#/components/schemas/([^\"']+)", str(document)))
        assert referred <= set(schemas), path


def test_the_schema_of_vmis_has_named_types(api):
    document = api.get_document(f"/openapi/v3{KUBEVIRT}")
    whole = str(document)
    for name in (
        "containerDisk",
        "cloudInitNoCloud",
        "terminationGracePeriodSeconds",
        "masquerade",
    ):
        assert f"'{name}'" in whole


def definition(group):
    schema = {"openAPIV3Schema": {"type": "object"}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"sheep.{group}",
            "annotations": {"api-approved.kubernetes.io": APPROVED},
        },
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"plural": "sheep", "kind": "Sheep"},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": schema}],
        },
    }


@contextlib.contextmanager
def defined(user, group):
    user.kubectl("create", "-f", "-", input=json.dumps(definition(group)))
    yield f"crd/sheep.{group}"
    user.kubectl("delete", "crd", f"sheep.{group}")


def paths(user):
    return json.loads(user.kubectl("get", "--raw", "/"))["paths"]


def test_the_root_lists_the_paths_that_are_served(user):
    group = "/apis/meadow.k8s.io"
    assert {"/api/v1", "/apis/apps/v1", "/version"} <= set(paths(user))
    assert group not in paths(user)
    with defined(user, "meadow.k8s.io") as crd:
        user.kubectl("wait", "--for=condition=Established", crd)
        user.kubectl("wait", "--for=condition=KubernetesAPIApprovalPolicyConformant", crd)
        assert {group, f"{group}/v1"} <= set(paths(user))
    assert group not in paths(user)


@pytest.mark.parametrize("group", ["networking.k8s.io", "custom.metrics.k8s.io"])
def test_groups_of_the_server_itself_take_no_definitions(user, group):
    with defined(user, group) as crd:
        user.kubectl("wait", "--for=condition=NamesAccepted=False", crd)
        described = user.kubectl("describe", crd)
        assert f'group "{group}" is served by the server itself' in described
        assert "sheep" not in user.kubectl("api-resources")
