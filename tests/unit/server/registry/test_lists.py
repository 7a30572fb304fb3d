"""Tests of lists: selectors, pages, revisions, and the forms of answers."""

import asyncio
import base64
import json

import pytest
from hypothesis import given, strategies as st

from corral.aio import OBJECTS_PER_TURN
from corral.api.errors import BadRequest
from corral.api.object import Key
from corral.server.registry.lists import Continue
from corral.store import split_kind

MAPS = "/api/v1/namespaces/default/configmaps"
SETS = "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstancereplicasets"
PODS = "/api/v1/namespaces/default/pods"
EVENTS = "/apis/events.k8s.io/v1/namespaces/default/events"
EVENT = {
    "regarding": {"kind": "Pod", "name": "a", "namespace": "default"},
    "eventTime": "2020-01-01T00:00:00.000000Z",
    "reportingController": "example.io/me",
    "reportingInstance": "me-1",
    "action": "Looked",
    "reason": "Looked",
    "type": "Normal",
}
TABLE = {"accept": "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"}
DEEP = base64.urlsafe_b64encode(b'{"x":' + b"[" * 5000 + b"]" * 5000 + b"}").decode()
METADATA = {"accept": "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"}


async def fill(ask, count=5):
    for number in range(count):
        labels = {"even": str(number % 2 == 0).lower()}
        await ask.create(MAPS, f"m{number}", labels=labels, data={"n": str(number)})


async def test_a_list_has_its_kind_and_revision(ask):
    empty = await ask("GET", MAPS)
    assert empty.document == {
        "kind": "ConfigMapList",
        "apiVersion": "v1",
        "metadata": {"resourceVersion": "1"},
        "items": [],
    }
    await fill(ask, 2)
    listed = await ask("GET", MAPS)
    assert listed.names == ["m0", "m1"]
    assert listed.metadata["resourceVersion"] == "3"
    assert listed["items"][0].keys() == {"metadata", "data"}


async def test_items_of_untyped_lists_have_kind_and_version(ask, replica_set):
    """Kubernetes' own kinds are read into Go's types, which leave that out of lists."""
    await fill(ask, 3)
    await ask("POST", SETS, replica_set)
    await ask.create(EVENTS, "e", **EVENT)
    for path in (MAPS, "/api/v1/namespaces/default/events", EVENTS):
        listed = await ask("GET", path)
        assert listed["items"]
        for item in listed["items"]:
            assert not {"kind", "apiVersion"} & item.keys()
            whole = (await ask("GET", f"{path}/{item['metadata']['name']}")).document
            assert item == {k: v for k, v in whole.items() if k not in ("kind", "apiVersion")}
        shown = await ask("GET", f"{path}?includeObject=Object", headers=TABLE)
        assert shown["rows"][0]["object"]["kind"] == whole["kind"]
    (item,) = (await ask("GET", SETS))["items"]
    assert (item["apiVersion"], item["kind"]) == (replica_set["apiVersion"], replica_set["kind"])
    answer = await ask("GET", MAPS, headers=METADATA)
    assert answer["items"][0]["kind"] == "PartialObjectMetadata"


async def test_items_stored_in_an_older_form_are_presented_alike(ask):
    await fill(ask, 2)
    key = Key("default", "m0")
    store = ask.server.store
    odd = {"kind": "ConfigMap", "data": {}, **store.latest("configmaps", key).document()}
    odd["apiVersion"] = odd.pop("apiVersion")
    record = await store.write("configmaps", key, odd)
    record.head, record._rest = split_kind(json.dumps(record.document(), sort_keys=True).encode())
    items = (await ask("GET", MAPS))["items"]
    assert [item.keys() for item in items] == [{"metadata", "data"}] * 2


async def test_tables_and_partial_metadata_have_the_requested_version(ask):
    await fill(ask, 1)
    for form, path in (
        ("Table", MAPS),
        ("Table", f"{MAPS}/m0"),
        ("PartialObjectMetadataList", MAPS),
        ("PartialObjectMetadata", f"{MAPS}/m0"),
    ):
        for version in ("v1", "v1beta1"):
            headers = {"accept": f"application/json;as={form};v={version};g=meta.k8s.io"}
            answer = await ask("GET", path, headers=headers)
            assert (answer["kind"], answer["apiVersion"]) == (form, f"meta.k8s.io/{version}")
            for row in answer.document.get("rows", ()):
                assert row["object"]["apiVersion"] == f"meta.k8s.io/{version}"
            for item in answer.document.get("items", ()):
                assert item["apiVersion"] == f"meta.k8s.io/{version}"


async def test_kinds_that_are_not_stored_have_no_table(ask):
    review = {"spec": {"nonResourceAttributes": {"path": "/", "verb": "get"}}}
    alone = {"accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
    for path, body in (
        ("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", review),
        ("/apis/authentication.k8s.io/v1/selfsubjectreviews", {}),
    ):
        assert (await ask("POST", path, body, alone)).status == 406
        assert (await ask("POST", path, body, TABLE)).status == 201


async def test_endpoints_are_deprecated(ask):
    for method, path in (("GET", ""), ("GET", "/nothing")):
        answer = await ask(method, f"/api/v1/namespaces/default/endpoints{path}")
        assert answer.warnings == [
            '299 - "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice"'
        ]


async def test_missing_subresources_of_custom_resources_are_a_status(ask, replica_set):
    await ask("POST", SETS, replica_set)
    for path in (f"{SETS}/web/log", f"{SETS}/none/log/x"):
        answer = await ask("GET", path)
        name = path.removeprefix(SETS).split("/")[1]
        assert (answer.status, answer["reason"]) == (404, "NotFound")
        assert answer["message"] == (
            f'virtualmachineinstancereplicasets.kubevirt.io "{name}" not found'
        )


async def test_a_list_in_a_namespace_that_does_not_exist_is_empty(ask):
    assert (await ask("GET", "/api/v1/namespaces/nons/configmaps")).names == []


async def test_selectors_filter_lists(ask, pod):
    await fill(ask)
    assert (await ask("GET", f"{MAPS}?labelSelector=even%3Dtrue")).names == ["m0", "m2", "m4"]
    assert (await ask("GET", f"{MAPS}?labelSelector=even+notin+(true)")).names == ["m1", "m3"]
    assert (await ask("GET", f"{MAPS}?fieldSelector=metadata.name%3Dm2")).names == ["m2"]
    assert len((await ask("GET", f"{MAPS}?fieldSelector=metadata.name%21%3Dm2")).names) == 4
    await ask("POST", PODS, pod)
    assert (await ask("GET", "/api/v1/pods?fieldSelector=spec.nodeName%3Done")).names == ["pod"]
    assert (await ask("GET", "/api/v1/pods?fieldSelector=spec.nodeName%3Dtwo")).names == []


async def test_results_of_equal_field_selectors_are_cached_once(ask):
    spec = {"containers": [{"name": "c", "image": "i"}], "nodeName": "one"}
    for name in ("a", "b"):
        await ask.create(PODS, name, spec=spec)
    store = ask.server.store
    assert (await ask("GET", f"{PODS}?fieldSelector=spec.nodeName%3Done")).names == ["a", "b"]
    first, second = store.objects("pods")
    assert first.fields == {"spec.nodeName": "one"}
    assert first.fields is second.fields
    path = f"{PODS}?fieldSelector=spec.nodeName%3Done,status.phase%3DPending"
    assert (await ask("GET", path)).names == ["a", "b"]
    assert first.fields == {"spec.nodeName": "one", "status.phase": "Pending"}


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("labelSelector=a+in", "unable to parse requirement"),
        ("fieldSelector=data.n%3D1", "field label not supported: data.n"),
        ("limit=x", "limit"),
        ("limit=-1", "limit"),
        ("resourceVersion=x", "resourceVersion"),
        ("continue=x", "continue key is not valid"),
        (f"continue={DEEP}", "continue key is not valid: exceeded max depth"),
        ("continue=e30&resourceVersion=5", "not allowed when using continue"),
        ("resourceVersionMatch=Exact", "forbidden"),
        ("resourceVersion=0&resourceVersionMatch=Exact", "forbidden"),
        ("resourceVersion=1&resourceVersionMatch=Maybe", "Unsupported value"),
    ],
)
async def test_invalid_query_parameters_are_rejected(ask, query, text):
    refused = await ask("GET", f"{MAPS}?{query}")
    assert refused.status in (400, 422)
    assert text in refused["message"]


async def test_pages_are_one_consistent_list(ask):
    await fill(ask)
    first = await ask("GET", f"{MAPS}?limit=2")
    assert first.names == ["m0", "m1"]
    assert first.metadata["remainingItemCount"] == 3
    await ask("DELETE", f"{MAPS}/m2")
    await ask.create(MAPS, "m33")
    second = await ask("GET", f"{MAPS}?limit=2&continue={first.metadata['continue']}")
    assert second.names == ["m2", "m3"]
    assert second.metadata["resourceVersion"] == first.metadata["resourceVersion"]
    third = await ask("GET", f"{MAPS}?limit=2&continue={second.metadata['continue']}")
    assert third.names == ["m4"]
    assert "continue" not in third.metadata


async def test_pages_of_a_selection_have_no_remaining_count(ask):
    await fill(ask)
    page = await ask("GET", f"{MAPS}?limit=1&labelSelector=even%3Dtrue")
    assert page.metadata["continue"]
    assert "remainingItemCount" not in page.metadata


async def turns(asking):
    """Return how often others have their turn during a request, and its answer."""
    task, count = asyncio.create_task(asking), 0
    while not task.done():
        await asyncio.sleep(0)
        count += 1
    return count, await task


async def test_a_long_scan_yields_to_other_requests(ask):
    for index in range(3 * OBJECTS_PER_TURN):
        await ask.create(MAPS, f"m{index:03}", labels={"odd": str(index % 2)})
    least, _ = await turns(ask("GET", f"{SETS}?labelSelector=odd=1"))
    count, found = await turns(ask("GET", f"{MAPS}?labelSelector=odd=1&limit={OBJECTS_PER_TURN}"))
    assert count == least + 2
    assert found.names == [f"m{index:03}" for index in range(1, 2 * OBJECTS_PER_TURN, 2)]
    assert found.metadata["continue"]


async def test_a_list_can_be_of_an_old_but_not_a_compacted_revision(ask):
    await fill(ask, 2)
    await ask("DELETE", f"{MAPS}/m0")
    past = await ask("GET", f"{MAPS}?resourceVersion=3&resourceVersionMatch=Exact")
    assert past.names == ["m0", "m1"]
    assert past.metadata["resourceVersion"] == "3"
    recent = await ask("GET", f"{MAPS}?resourceVersion=3&resourceVersionMatch=NotOlderThan")
    assert recent.names == ["m1"]
    ask.server.store._memory.forget(4)
    gone = await ask("GET", f"{MAPS}?resourceVersion=3&resourceVersionMatch=Exact")
    assert (gone.status, gone["reason"]) == (410, "Expired")
    token = Continue.after(Key("default", "m0"), 3).encode()
    gone = await ask("GET", f"{MAPS}?continue={token}")
    assert gone.status == 410
    assert "start a new list" in gone["message"]
    rest = await ask("GET", f"{MAPS}?continue={gone.metadata['continue']}")
    assert rest.names == ["m1"]
    assert rest.metadata["resourceVersion"] == str(ask.server.store.revision)


async def test_a_future_revision_is_awaited_then_rejected(ask, monkeypatch):
    monkeypatch.setattr("corral.server.registry.rest.WAIT_SECONDS", 0.02)
    await ask.create(MAPS, "a")
    assert (await ask("GET", f"{MAPS}/a?resourceVersion=2")).status == 200
    for path in (MAPS, f"{MAPS}/a"):
        refused = await ask("GET", f"{path}?resourceVersion=99")
        assert (refused.status, refused["reason"]) == (504, "Timeout")
        assert refused["message"] == "Timeout: Too large resource version: 99, current: 2"
        assert refused["details"]["causes"][0]["reason"] == "ResourceVersionTooLarge"
        assert refused.headers["retry-after"] == "1"


async def test_a_table_has_the_columns_of_the_kind(ask, replica_set):
    await ask("POST", SETS, replica_set)
    table = await ask("GET", SETS, headers=TABLE)
    assert table["kind"] == "Table"
    names = [column["name"] for column in table["columnDefinitions"]]
    assert names == ["Name", "Desired", "Current", "Ready", "Age"]
    cells = table["rows"][0]["cells"]
    assert cells[:4] == ["web", 3, None, None]
    assert table["rows"][0]["object"]["kind"] == "PartialObjectMetadata"
    one = await ask("GET", f"{SETS}/web", headers=TABLE)
    assert len(one["rows"]) == 1
    whole = await ask("GET", f"{SETS}?includeObject=Object", headers=TABLE)
    assert whole["rows"][0]["object"]["spec"]["replicas"] == 3
    missing = await ask("GET", f"{SETS}/nosuch", headers=TABLE)
    assert missing["kind"] == "Status"


async def test_partial_object_metadata_lists(ask):
    assert (await ask("GET", MAPS, headers=METADATA))["items"] is None
    await fill(ask, 1)
    listed = await ask("GET", MAPS, headers=METADATA)
    assert listed["kind"] == "PartialObjectMetadataList"
    assert listed["items"][0]["kind"] == "PartialObjectMetadata"
    assert "data" not in listed["items"][0]


@pytest.mark.parametrize(
    ("accept", "status"),
    [
        ("", 200),
        ("*/*", 200),
        ("application/json", 200),
        ("application/vnd.kubernetes.protobuf,application/json", 200),
        ("application/json;as=Table;v=v9;g=meta.k8s.io,application/json", 200),
        ("application/vnd.kubernetes.protobuf;as=Table;v=v1;g=meta.k8s.io", 406),
        ("text/html", 406),
    ],
)
async def test_the_accept_header_selects_the_form(ask, accept, status):
    answer = await ask("GET", MAPS, headers={"accept": accept})
    assert answer.status == status
    if status == 406:
        assert "only the following media types are accepted" in answer["message"]


@given(st.text(max_size=20), st.text("abc-", min_size=1, max_size=20), st.integers(1, 2**40))
def test_a_continue_token_is_read_back(namespace, name, revision):
    if "/" in namespace or "\0" in namespace:
        return
    token = Continue.after(Key(namespace, name), revision).encode()
    assert Continue.read(token).key == Key(namespace, name)
    assert Continue.read(token).revision == revision


@given(st.text(max_size=40))
def test_an_invalid_continue_token_is_a_bad_request(token):
    with pytest.raises(BadRequest):
        Continue.read(token)


async def test_a_continue_token_of_a_future_revision_is_rejected(ask):
    forged = Continue.after(Key("default", "a"), 10**9).encode()
    refused = await ask("GET", f"{MAPS}?limit=1&continue={forged}")
    assert refused.status == 400
    assert "continue key is not valid" in refused["message"]
