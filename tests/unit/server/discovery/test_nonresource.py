"""Tests of what is served beside objects."""

import json
from dataclasses import replace

import pytest
from tests.exposition import Scrape
from tests.unit.server.conftest import Asker

from corral.api.errors import StorageFull
from corral.api.kinds import KINDS
from corral.api.request import User
from corral.server.app import MAX_BODY_BYTES

AGGREGATED = {
    "accept": "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,"
    "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json"
}

OPEN_METRICS = "application/openmetrics-text; version=1.0.0"


async def test_health(ask):
    for path in ("/healthz", "/livez", "/readyz"):
        assert (await ask("GET", path)).text == "ok"
    verbose = await ask("GET", "/readyz?verbose")
    assert verbose.text == "[+]ping ok\n[+]store ok\nreadyz check passed\n"


async def test_the_root_lists_what_is_served(ask):
    answer = await ask("GET", "/")
    assert list(answer.document) == ["paths"]
    paths = answer["paths"]
    assert paths == sorted(set(paths))
    assert {"/api", "/api/v1", "/apis/apps", "/apis/kubevirt.io/v1", "/readyz/store"} <= {*paths}
    for path in paths:
        assert (await ask("GET", path)).status == 200, path
    ask.server.kinds.add(replace(KINDS.by_kind("", "ConfigMap"), group="farm.example.com"))
    now = (await ask("GET", "/index.html"))["paths"]
    assert {*now} - {*paths} == {"/apis/farm.example.com", "/apis/farm.example.com/v1"}
    assert (await ask("GET", "/nothing")).status == 404
    ben = Asker(ask.server, User(name="ben", groups=("system:authenticated",)))
    refused = await ben("GET", "/")
    assert refused["message"] == 'forbidden: User "ben" cannot get path "/"'


async def test_the_version_is_kubernetes(ask):
    version = await ask("GET", "/version?timeout=5s")
    assert version["gitVersion"].startswith("v1.37.")
    assert (version["major"], version["minor"]) == ("1", "37")


async def test_discovery_in_both_forms(ask):
    old = await ask("GET", "/apis")
    assert old["kind"] == "APIGroupList"
    new = await ask("GET", "/apis", headers=AGGREGATED)
    assert new.headers["content-type"] == (
        "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
    )
    groups = {item["metadata"]["name"]: item for item in new["items"]}
    assert "kubevirt.io" in groups
    names = [each["resource"] for each in groups["kubevirt.io"]["versions"][0]["resources"]]
    assert "virtualmachineinstancereplicasets" in names
    core = await ask("GET", "/api/v1")
    assert {"pods/binding", "pods/log", "namespaces/finalize"} <= {
        each["name"] for each in core["resources"]
    }
    machines = await ask("GET", "/apis/subresources.kubevirt.io/v1")
    names = {each["name"] for each in machines["resources"]}
    assert {f"virtualmachineinstances/{name}" for name in ("console", "vnc/screenshot")} <= names
    older = await ask("GET", "/apis/subresources.kubevirt.io/v1alpha3")
    assert {each["name"] for each in older["resources"]} == names


@pytest.mark.parametrize("version", ["v1", "v1alpha3"])
async def test_kubevirts_version_and_health_are_public(ask, version):
    anonymous = Asker(ask.server, user=None)
    group = f"/apis/subresources.kubevirt.io/{version}"
    said = await anonymous("GET", f"{group}/version")
    assert said["gitVersion"].startswith("v1.")
    assert (await anonymous("GET", f"{group}/healthz")).status == 200
    missing = await anonymous("GET", f"{group}/guestfs")
    assert (missing.status, missing["reason"]) == (404, "NotFound")
    assert (await anonymous("GET", group)).status == 401


async def test_discovery_is_sent_once(ask):
    first = await ask("GET", "/apis", headers=AGGREGATED)
    tag = first.headers["etag"]
    again = await ask("GET", "/apis", headers={**AGGREGATED, "if-none-match": tag})
    assert (again.status, again.text) == (304, "")
    assert again.headers["etag"] == tag


async def test_every_schema_of_the_index_is_served(ask):
    index = (await ask("GET", "/openapi/v3?timeout=32s"))["paths"]
    assert {"api/v1", "apis/kubevirt.io/v1"} <= set(index)
    for place in index.values():
        served = await ask("GET", place["serverRelativeURL"])
        assert served.status == 200
        assert "immutable" in served.headers["cache-control"]
        assert served["openapi"].startswith("3.0")
    moved = await ask("GET", "/openapi/v3/apis/kubevirt.io/v1?hash=old")
    assert moved.status == 301
    assert moved.headers["location"] == index["apis/kubevirt.io/v1"]["serverRelativeURL"]
    assert (await ask("GET", "/openapi/v3/apis/nosuch/v1")).status == 404


async def test_openapi_v2_in_json_and_protobuf(ask):
    served = await ask("GET", "/openapi/v2")
    assert served["swagger"] == "2.0"
    assert "io.k8s.api.core.v1.Pod" in served["definitions"]
    tag = served.headers["etag"]
    again = await ask("GET", "/openapi/v2", headers={"if-none-match": tag})
    assert (again.status, again.text) == (304, "")
    for letter in "@.":
        accepted = f"application/com.github.proto-openapi.spec.v2{letter}v1.0+protobuf"
        answer = await ask.raw("GET", "/openapi/v2", headers={"accept": accepted})
        headers = dict(answer.headers)
        # the media type with @ is none that Go could read
        assert headers["content-type"] == accepted.replace("@", ".")
        assert headers["etag"] == tag
        assert answer.body.startswith(b"\n\x032.0")


async def test_unknown_paths_are_a_plain_404(ask):
    for path in (
        "/nonsense",
        "/apis/no.such/v1/things",
        "/apis/kubevirt.io/v1/things",
        "/apis/kubevirt.io/v1/virtualmachines/vm",
        "/openapi/v4",
    ):
        answer = await ask("GET", path)
        assert answer.status == 404
        assert answer.text == "404 page not found\n"
        assert answer.headers["content-type"].startswith("text/plain")


async def test_unknown_paths_in_native_groups_are_a_status(ask):
    for path in (
        "/api/v1/nonsense",
        "/api/v1/namespaces/default/nodes",
        "/api/v1/namespaces/default/namespaces/default",
        "/apis/apps/v1/deployments/web",
    ):
        answer = await ask("GET", path)
        assert (answer.status, answer["reason"]) == (404, "NotFound")
        assert answer["message"] == "the server could not find the requested resource"


async def test_cluster_scoped_objects_cannot_be_created_in_a_namespace(ask):
    node = {"metadata": {"name": "ghost"}}
    assert (await ask("POST", "/api/v1/namespaces/default/nodes", node)).status == 404
    assert (await ask("GET", "/api/v1/nodes")).names == []


async def test_metrics_are_in_prometheus_form(ask):
    metrics = await ask("GET", "/metrics")
    assert metrics.headers["content-type"].startswith("text/plain")
    assert 'apiserver_resource_objects{group="",resource="namespaces"} 1.0' in metrics.text
    created = {"verb": "POST", "group": "", "version": "v1", "resource": "namespaces"}
    created |= {"subresource": "", "scope": "resource", "component": "apiserver"}
    scrape = Scrape(metrics.text)
    assert scrape.value("apiserver_request_total", code="201", **created) == 1
    assert scrape.value("apiserver_request_duration_seconds_count", **created) == 1
    assert scrape.value("corral_store_revision") == 1
    assert scrape.value("corral_store_commit_duration_seconds_count") == 1
    open_metrics = await ask("GET", "/metrics", headers={"accept": OPEN_METRICS})
    assert open_metrics.headers["content-type"].startswith(OPEN_METRICS)
    assert (await ask.as_user("bob")("GET", "/metrics")).status == 403


async def test_kinds_that_are_not_stored_have_no_count(ask):
    counted = {
        (sample.labels["group"], sample.labels["resource"])
        for sample in Scrape((await ask("GET", "/metrics")).text)
        .families["apiserver_resource_objects"]
        .samples
    }
    assert ("", "pods") in counted
    assert ("metrics.k8s.io", "pods") not in counted
    assert not counted & {(kind.group, kind.plural) for kind in KINDS if not kind.is_kept}


async def counted(ask, code, **labels):
    """How many requests were answered so; the labels that are not named are empty."""
    scrape = Scrape((await ask("GET", "/metrics")).text)
    empty = dict.fromkeys(("group", "version", "resource", "subresource", "scope"), "")
    series = {**empty, **labels, "component": "apiserver"}
    answers = scrape.value("apiserver_request_total", code=str(code), **series)
    assert scrape.value("apiserver_request_duration_seconds_count", **series) >= answers
    return answers


OF_NODE = {"verb": "GET", "version": "v1", "resource": "nodes", "scope": "resource"}


async def test_a_crash_is_counted(ask, monkeypatch):
    monkeypatch.setattr(ask.server._verbs, "answer", lambda _call: 1 // 0)
    assert (await ask("GET", "/api/v1/nodes/one")).status == 500
    assert await counted(ask, 500, **OF_NODE) == 1


async def test_forbidden_requests_are_counted(ask):
    assert (await ask.as_user("bob")("GET", "/api/v1/nodes/one")).status == 403
    assert await counted(ask, 403, **OF_NODE) == 1


async def test_unauthenticated_requests_are_counted_by_method_only(ask):
    anonymous = Asker(ask.server, user=None)
    for path in ("/api/v1/nodes/one", "/apis"):
        assert (await anonymous("GET", path)).status == 401
    assert await counted(ask, 401, verb="GET") == 2


async def test_too_large_bodies_are_counted(ask):
    body = b" " * (MAX_BODY_BYTES + 1)
    assert (await ask("POST", "/api/v1/namespaces", body)).status == 413
    created = {**OF_NODE, "verb": "POST", "resource": "namespaces"}
    assert await counted(ask, 413, **created) == 1


async def test_requests_of_non_resource_paths_are_counted(ask):
    for path in ("/nonsense", "/api/v1/nonsense", "/apis/no.such/v1/things"):
        await ask("GET", path)
    await ask("BREW", "/version")
    assert await counted(ask, 404, verb="GET") == 3
    assert await counted(ask, 404, verb="other") == 1


async def test_a_server_that_cannot_write_is_not_ready(ask, monkeypatch):
    def full(*_args):
        raise StorageFull("no space left")

    with monkeypatch.context() as patch:
        patch.setattr(ask.server.store._log, "append", full)
        refused = await ask("POST", "/api/v1/namespaces", {"metadata": {"name": "a"}})
        assert (refused.status, refused["reason"]) == (507, "InsufficientStorage")
    ready = await ask("GET", "/readyz")
    assert ready.status == 500
    assert "[-]store failed: no space left" in ready.text
    answer = await ask.as_user("bob")("GET", "/readyz")
    assert answer.status == 500
    assert "[-]store failed: reason withheld" in answer.text
    assert (await ask("GET", "/livez")).status == 200
    assert (await ask("POST", "/api/v1/namespaces", {"metadata": {"name": "a"}})).status == 201
    assert (await ask("GET", "/readyz")).status == 200


async def test_an_exception_is_an_internal_error(ask, monkeypatch):
    def fail(*_args):
        raise ZeroDivisionError

    monkeypatch.setattr(ask.server.store, "get", fail)
    answer = await ask("GET", "/api/v1/nodes/one")
    assert (answer.status, answer["reason"]) == (500, "InternalError")
    assert "ZeroDivision" not in json.dumps(answer.document)
