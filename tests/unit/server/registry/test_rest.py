"""Tests of create, get, update and patch."""

import asyncio
import re

import pytest
from tests.unit.server.conftest import MACHINES, MAPS, PODS, SETS

RBAC = "rbac.authorization.k8s.io"


async def test_empty_metadata_fields_are_omitted(ask):
    empty = {"labels": {}, "annotations": {}, "ownerReferences": [], "finalizers": []}
    made = await ask("POST", MAPS, {"metadata": {"name": "a", "generateName": None, **empty}})
    assert not made.metadata.keys() & {"generateName", *empty}
    wrong = await ask("POST", MAPS, {"metadata": {"name": "b", "labels": []}})
    assert wrong.status == 400


async def test_a_created_object_has_metadata_and_can_be_read(ask):
    made = await ask("POST", MAPS, {"metadata": {"name": "a"}, "data": {"x": "1"}})
    assert made.status == 201
    assert made["apiVersion"] == "v1"
    assert made["kind"] == "ConfigMap"
    assert made.metadata["namespace"] == "default"
    assert re.fullmatch(r"[0-9a-f-]{36}", made.metadata["uid"])
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", made.metadata["creationTimestamp"])
    found = await ask("GET", f"{MAPS}/a")
    assert found.document == made.document
    assert found.metadata["resourceVersion"] == "2"


async def test_clients_cannot_set_server_fields(ask):
    sent = {
        "name": "a",
        "uid": "mine",
        "generation": 7,
        "deletionTimestamp": "2020-01-01T00:00:00Z",
    }
    made = await ask("POST", MAPS, {"metadata": sent})
    assert made.metadata["uid"] != "mine"
    assert not {"generation", "deletionTimestamp"} & set(made.metadata)


async def test_generated_names_have_a_unique_suffix_of_five_letters(ask):
    names = {
        (await ask("POST", MAPS, {"metadata": {"generateName": "a-"}})).metadata["name"]
        for _ in range(20)
    }
    assert len(names) == 20
    assert all(re.fullmatch(r"a-[bcdfghjklmnpqrstvwxz2456789]{5}", name) for name in names)
    long = await ask("POST", MAPS, {"metadata": {"generateName": "a" * 80}})
    assert len(long.metadata["name"]) == 63


async def test_a_name_is_required(ask):
    refused = await ask("POST", MAPS, {"metadata": {}})
    assert (refused.status, refused["reason"]) == (422, "Invalid")
    assert "name or generateName is required" in refused["message"]


async def test_a_second_object_of_a_name_already_exists(ask):
    await ask.create(MAPS, "a")
    refused = await ask("POST", MAPS, {"metadata": {"name": "a"}})
    assert (refused.status, refused["reason"]) == (409, "AlreadyExists")
    assert refused["message"] == 'configmaps "a" already exists'
    assert refused["details"] == {"name": "a", "kind": "configmaps"}


async def test_of_concurrent_creations_of_one_name_one_succeeds(ask):
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(ask("POST", MAPS, {"metadata": {"name": "a"}})) for _ in range(20)
        ]
    assert sorted(task.result().status for task in tasks) == [201] + [409] * 19


async def test_a_resource_version_on_create_is_rejected(ask):
    refused = await ask("POST", MAPS, {"metadata": {"name": "a", "resourceVersion": "1"}})
    assert (refused.status, refused["reason"]) == (400, "BadRequest")
    assert refused["message"] == "resourceVersion should not be set on objects to be created"
    made = await ask("POST", MAPS, {"metadata": {"name": "a", "resourceVersion": "0"}})
    assert made.status == 201
    assert made.metadata["resourceVersion"] != "0"


async def test_a_resource_version_on_create_is_the_last_check(ask, replica_set):
    await ask.create(MAPS, "a")
    taken = await ask("POST", MAPS, {"metadata": {"name": "a", "resourceVersion": "1"}})
    assert taken.status == 400
    wrong = {"metadata": {"name": "b", "resourceVersion": "1"}, "data": {"/": ""}}
    assert (await ask("POST", MAPS, wrong)).status == 422
    replica_set["metadata"]["resourceVersion"] = "1"
    assert (await ask("POST", SETS, replica_set)).status == 400
    replica_set["spec"]["selector"] = {"matchLabels": {"app": "other"}}
    refused = await ask("POST", SETS, replica_set)
    assert refused.status == 422
    assert "denied the request" in refused["message"]


async def test_the_namespace_of_a_cluster_scoped_object_is_cleared(ask):
    for path in ("/api/v1/nodes", "/api/v1/namespaces"):
        body = {"metadata": {"name": "a", "namespace": "default", "labels": {"a": "b"}}}
        made = await ask("POST", path, body)
        assert made.status == 201, made.text
        replaced = await ask("PUT", f"{path}/a", body)
        patched = await ask.patch(f"{path}/a", body)
        applied = await ask(
            "PATCH",
            f"{path}/a?fieldManager=me&force=true",
            {"apiVersion": "v1", "kind": made["kind"], **body},
            {"content-type": "application/apply-patch+yaml"},
        )
        for answer in (made, replaced, patched, applied):
            assert answer.status in (200, 201), answer.text
            assert "namespace" not in answer.metadata
    elsewhere = await ask("POST", MAPS, {"metadata": {"name": "a", "namespace": "other"}})
    assert elsewhere.status == 400


async def test_all_faults_of_an_object_are_reported_at_once(ask):
    wrong = {"metadata": {"name": "A", "labels": {"/": ""}}, "data": {"/": "", "+": ""}}
    refused = await ask("POST", MAPS, wrong)
    assert [cause["field"] for cause in refused["details"]["causes"]] == [
        *(
            "metadata.name",
            "metadata.labels",
            "metadata.labels",
            "metadata.labels",
            "data[/]",
            "data[+]",
        )
    ]


async def test_another_kind_at_a_custom_kinds_path_is_invalid(ask, replica_set):
    replica_set["kind"] = "VirtualMachine"
    refused = await ask("POST", SETS, replica_set)
    assert (refused.status, refused["reason"]) == (422, "Invalid")
    why = 'Invalid value: "VirtualMachine": must be VirtualMachineInstanceReplicaSet'
    assert refused["message"] == f'VirtualMachine.kubevirt.io "web" is invalid: kind: {why}'
    assert refused["details"] == {
        "name": "web",
        "group": "kubevirt.io",
        "kind": "VirtualMachine",
        "causes": [{"reason": "FieldValueInvalid", "message": why, "field": "kind"}],
    }
    replica_set["apiVersion"] = "kubevirt.io/v2"
    assert (await ask("POST", SETS, replica_set)).status == 400
    assert (await ask("POST", MAPS, {"kind": "Pod", "metadata": {"name": "a"}})).status == 400


async def test_a_namespace_must_exist_and_not_be_terminating(ask):
    refused = await ask("POST", "/api/v1/namespaces/nons/configmaps", {"metadata": {"name": "a"}})
    assert (refused.status, refused["message"]) == (404, 'namespaces "nons" not found')
    await ask("POST", "/api/v1/namespaces", {"metadata": {"name": "lab"}})
    await ask("DELETE", "/api/v1/namespaces/lab")
    refused = await ask("POST", "/api/v1/namespaces/lab/configmaps", {"metadata": {"name": "a"}})
    assert (refused.status, refused["reason"]) == (403, "Forbidden")
    assert refused["message"] == (
        'configmaps "a" is forbidden: unable to create new content in namespace lab '
        "because it is being terminated"
    )
    assert refused["details"]["causes"][0]["reason"] == "NamespaceTerminating"


async def test_a_label_without_a_value_has_the_empty_one(ask, replica_set):
    texts = {"app": None, "tier": "web"}
    made = await ask(
        "POST",
        MAPS,
        {"metadata": {"name": "a", "labels": texts, "annotations": texts}, "data": texts},
    )
    empty = {"app": "", "tier": "web"}
    assert [made["data"], made.metadata["labels"], made.metadata["annotations"]] == [empty] * 3
    replica_set["metadata"]["labels"] = texts
    assert (await ask("POST", SETS, replica_set)).metadata["labels"] == empty
    secret = {"metadata": {"name": "a"}, "type": "", "stringData": texts}
    made = await ask("POST", "/api/v1/namespaces/default/secrets", secret)
    assert made["type"] == "Opaque"
    assert made["data"] == {"app": "", "tier": "d2Vi"}


async def test_resource_version_0_counts_as_none(ask, replica_set):
    await ask.create(MAPS, "a")
    document = {"metadata": {"name": "a", "resourceVersion": "0"}, "data": {"a": "1"}}
    assert (await ask("PUT", f"{MAPS}/a", document))["data"] == {"a": "1"}
    await ask("POST", SETS, replica_set)
    for version in ("0", ""):
        replica_set["metadata"]["resourceVersion"] = version
        refused = await ask("PUT", f"{SETS}/web", replica_set)
        assert refused.status == 422
        assert refused["message"].endswith("Invalid value: 0: must be specified for an update")


async def test_base64_may_have_line_breaks(ask):
    secrets = "/api/v1/namespaces/default/secrets"
    made = await ask("POST", secrets, {"metadata": {"name": "a"}, "data": {"a": "YWJj\nZGVm\n"}})
    assert (made.status, made["data"]) == (201, {"a": "YWJjZGVm"})
    wrong = await ask("POST", secrets, {"metadata": {"name": "b"}, "data": {"a": "YWJj\n-"}})
    assert (wrong.status, wrong["message"].rpartition(": ")[2]) == (
        400,
        "illegal base64 data at input byte 5",
    )


async def test_a_namespace_in_the_body_must_be_that_of_the_path(ask):
    refused = await ask("POST", MAPS, {"metadata": {"name": "a", "namespace": "other"}})
    assert refused.status == 400
    assert "does not match the namespace sent on the request" in refused["message"]


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"{", "json parse error"),
        (b"[]", "must be a JSON object"),
        (b"", "no body"),
        (b'{"metadata": 3}', "metadata"),
        (b'{"apiVersion":"v2","kind":"ConfigMap","metadata":{"name":"a"}}', "API version"),
        (b'{"apiVersion":"v1","kind":"Secret","metadata":{"name":"a"}}', "Secret"),
        (b'{"metadata":{"name":"a","labels":{"a":3}}}', "labels"),
        (b'{"metadata":{"name":"No!"}}', "metadata.name"),
        (b"[" * 100_000, "depth"),
    ],
)
async def test_a_malformed_body_is_rejected_with_a_reason(ask, body, text):
    refused = await ask("POST", MAPS, body)
    assert refused.status in (400, 422), refused.text
    assert text in refused["message"]


async def test_an_unknown_media_type_is_rejected(ask):
    refused = await ask("POST", MAPS, b"<a/>", {"content-type": "text/xml"})
    assert (refused.status, refused["reason"]) == (415, "UnsupportedMediaType")


async def test_bodies_can_be_yaml(ask):
    body = b"metadata:\n  name: a\ndata: {x: 'yes'}\n"
    made = await ask("POST", MAPS, body, {"content-type": "application/yaml"})
    assert made.status == 201
    assert made["data"] == {"x": "yes"}


async def test_a_too_large_body_is_rejected(ask):
    refused = await ask("POST", MAPS, b" " * (3 << 20) + b"{}")
    assert (refused.status, refused["reason"]) == (413, "RequestEntityTooLarge")


async def test_unknown_fields_are_dropped_with_a_warning_or_rejected(ask):
    body = {"metadata": {"name": "a"}, "dada": {}}
    warned = await ask("POST", MAPS, body)
    assert warned.warnings == ['299 - "unknown field \\"dada\\""']
    assert "dada" not in warned.document
    body["metadata"]["name"] = "b"
    assert (await ask("POST", f"{MAPS}?fieldValidation=Ignore", body)).warnings == []
    body["metadata"]["name"] = "c"
    refused = await ask("POST", f"{MAPS}?fieldValidation=Strict", body)
    assert refused.status == 400
    assert refused["message"] == (
        'ConfigMap in version "v1" cannot be handled as a ConfigMap: '
        'strict decoding error: unknown field "dada"'
    )
    assert (await ask("POST", f"{MAPS}?fieldValidation=Maybe", body)).status == 422


async def test_duplicate_keys_are_rejected_if_strict(outside):
    body = b'{"metadata":{"name":"a"},"data":{"x":"1","x":"2"}}'
    refused = await outside("POST", f"{MAPS}?fieldValidation=Strict", body)
    assert refused.status == 400
    assert 'duplicate field "data.x"' in refused["message"]
    warned = await outside("POST", MAPS, body)
    assert warned.warnings == ['299 - "duplicate field \\"data.x\\""']
    colons = b'{"metadata":{"name":"b"},"data":{"y":"http://a:b","z":"\\u003a"}}'
    assert (await outside("POST", f"{MAPS}?fieldValidation=Strict", colons)).status == 201


async def test_negative_replicas_are_rejected_by_every_verb(ask, replica_set):
    replica_set["spec"]["replicas"] = -1
    refused = await ask("POST", SETS, replica_set)
    assert refused.status == 422
    assert ".spec.replicas: Invalid value: -1: should be a non-negative" in refused["message"]


async def test_unknown_fields_of_kubevirts_kinds_are_pruned_before_webhooks(ask, replica_set):
    replica_set["spec"]["replicaz"] = 3
    replica_set["spec"]["more"] = {"replicas": 1}
    both = ['299 - "unknown field \\"spec.more\\""', '299 - "unknown field \\"spec.replicaz\\""']
    for mode, warnings in (("Warn", both), ("Ignore", [])):
        made = await ask("POST", f"{SETS}?dryRun=All&fieldValidation={mode}", replica_set)
        assert (made.status, made.warnings) == (201, warnings)
        assert not {"replicaz", "more"} & made["spec"].keys()
    refused = await ask("POST", f"{SETS}?fieldValidation=Strict", replica_set)
    assert (refused.status, refused["reason"]) == (400, "BadRequest")
    assert refused["message"].endswith(
        'strict decoding error: unknown field "spec.more", unknown field "spec.replicaz"'
    )
    del replica_set["spec"]["replicaz"], replica_set["spec"]["more"]
    await ask("POST", SETS, replica_set)
    path = f"{SETS}/web?fieldValidation=Strict"
    refused = await ask.patch(path, {"spec": {"replicaz": 3}})
    assert (refused.status, refused["reason"]) == (422, "Invalid")
    (cause,) = refused["details"]["causes"]
    assert cause["field"] == "patch"
    assert cause["message"].endswith('strict decoding error: unknown field "spec.replicaz"')


async def test_strict_faults_of_native_kinds_are_in_the_order_of_the_body(outside):
    body = b"""{"metadata": {"name": "a", "nme": 1}, "data": {"x": "1", "x": "2", "x": "3"},
                "more": {"a": 1, "a": 2}, "more": 1}"""
    refused = await outside("POST", f"{MAPS}?fieldValidation=Strict", body)
    assert refused["message"].partition("strict decoding error: ")[2] == (
        'unknown field "metadata.nme", duplicate field "data.x", unknown field "more"'
    )
    assert len((await outside("POST", MAPS, body)).warnings) == 3


async def test_strict_faults_of_custom_kinds_have_duplicate_keys_first(outside):
    body = (
        b"""{"metadata": {"name": "a"}, "spec": {"z": 1, "b": 2, "replicas": 1, "replicas": 2}}"""
    )
    refused = await outside("POST", f"{SETS}?fieldValidation=Strict", body)
    assert refused["message"].partition("strict decoding error: ")[2] == (
        'duplicate field "spec.replicas", unknown field "spec.b", unknown field "spec.z"'
    )


async def test_a_dry_run_stores_nothing(ask):
    made = await ask("POST", f"{MAPS}?dryRun=All", {"metadata": {"name": "a"}})
    assert made.status == 201
    assert made.metadata["uid"]
    assert (await ask("GET", f"{MAPS}/a")).status == 404
    refused = await ask("POST", f"{MAPS}?dryRun=Some", {"metadata": {"name": "a"}})
    assert refused.status == 422
    assert 'dryRun: Unsupported value: ["Some"]: supported values: "All"' in refused["message"]


async def test_an_update_needs_the_newest_version(ask):
    old = await ask.create(MAPS, "a")
    new = await ask("PUT", f"{MAPS}/a", {**old, "data": {"x": "1"}})
    assert new.status == 200
    assert new["data"] == {"x": "1"}
    refused = await ask("PUT", f"{MAPS}/a", {**old, "data": {"x": "2"}})
    assert (refused.status, refused["reason"]) == (409, "Conflict")
    assert refused["message"] == (
        'Operation cannot be fulfilled on configmaps "a": the object has been modified; '
        "please apply your changes to the latest version and try again"
    )


async def test_an_update_without_a_version_is_for_native_kinds_only(ask, replica_set):
    await ask.create(MAPS, "a")
    assert (await ask("PUT", f"{MAPS}/a", {"metadata": {"name": "a"}})).status == 200
    await ask("POST", SETS, replica_set)
    refused = await ask("PUT", f"{SETS}/web", replica_set)
    assert refused.status == 422
    assert refused["message"] == (
        'virtualmachineinstancereplicasets.kubevirt.io "web" is invalid: '
        "metadata.resourceVersion: Invalid value: 0: must be specified for an update"
    )
    assert refused["details"]["kind"] == "virtualmachineinstancereplicasets"


async def test_an_update_of_another_name_or_uid_is_rejected(ask, replica_set):
    old = await ask.create(MAPS, "a")
    renamed = await ask("PUT", f"{MAPS}/a", {"metadata": {"name": "b"}})
    assert renamed.status == 400
    other = {"metadata": {**old["metadata"], "uid": "another"}}
    refused = await ask("PUT", f"{MAPS}/a", other)
    assert refused.status == 409
    assert "UID in precondition: another" in refused["message"]
    stale = {**old["metadata"], "uid": "another", "resourceVersion": "1"}
    assert "UID in pre" in (await ask("PUT", f"{MAPS}/a", {"metadata": stale}))["message"]
    foreign = {"metadata": {"name": "web", "uid": "another"}}
    await ask("POST", SETS, replica_set)
    for path in (f"{MAPS}/a", f"{SETS}/web"):
        foreign["metadata"]["name"] = path.rpartition("/")[2]
        refused = await ask("PUT", path, foreign)
        assert (refused.status, refused["reason"]) == (409, "Conflict")
        patched = await ask.patch(path, foreign)
        assert (patched.status, patched["reason"]) == (422, "Invalid")
        assert 'metadata.uid: Invalid value: "another": field is immutable' in patched["message"]
    foreign["metadata"]["name"] = "none"
    events = await ask("PUT", "/api/v1/namespaces/default/services/none", foreign)
    assert (events.status, events["reason"]) == (409, "Conflict")


async def test_no_update_begins_a_deletion(ask):
    old = await ask.create(MAPS, "a")
    for change in (
        {"deletionTimestamp": "2020-01-01T00:00:00Z"},
        {"deletionGracePeriodSeconds": 5},
    ):
        for refused in (
            await ask.patch(f"{MAPS}/a", {"metadata": change}),
            await ask("PUT", f"{MAPS}/a", {"metadata": old["metadata"] | change}),
        ):
            (cause,) = refused["details"]["causes"]
            assert cause["field"] == f"metadata.{next(iter(change))}"
            assert cause["message"].endswith(": field is immutable")


async def test_a_different_creation_timestamp_is_ignored(ask):
    """The real server takes it back before it compares (rest.BeforeUpdate)."""
    old = await ask.create(MAPS, "a")
    change = {"creationTimestamp": "2020-01-01T00:00:00Z"}
    for answer in (
        await ask.patch(f"{MAPS}/a", {"metadata": change}),
        await ask("PUT", f"{MAPS}/a", {"metadata": old["metadata"] | change}),
    ):
        assert (answer.status, answer.document) == (200, old)


async def test_an_update_of_a_missing_object_is_not_found(ask):
    refused = await ask("PUT", f"{MAPS}/a", {"metadata": {"name": "a"}})
    assert (refused.status, refused["message"]) == (404, 'configmaps "a" not found')
    assert refused["details"] == {"name": "a", "kind": "configmaps"}


async def test_identity_survives_updates(ask):
    old = await ask.create(MAPS, "a")
    new = await ask("PUT", f"{MAPS}/a", {"metadata": {"name": "a", "generateName": "x"}})
    for field in ("uid", "creationTimestamp", "namespace"):
        assert new.metadata[field] == old["metadata"][field]
    assert "generateName" not in new.metadata


async def test_a_write_without_changes_keeps_the_resource_version(ask):
    old = await ask.create(MAPS, "a", data={"x": "1"})
    same = await ask("PUT", f"{MAPS}/a", old)
    assert same.document == old
    patched = await ask.patch(f"{MAPS}/a", {"data": {"x": "1"}})
    assert patched.document == old


async def test_the_generation_counts_changes_of_the_spec(ask, replica_set):
    made = await ask("POST", SETS, replica_set)
    assert made.metadata["generation"] == 1
    labelled = await ask.patch(f"{SETS}/web", {"metadata": {"labels": {"a": "b"}}})
    assert labelled.metadata["generation"] == 1
    scaled = await ask.patch(f"{SETS}/web", {"spec": {"replicas": 5}})
    assert scaled.metadata["generation"] == 2


async def test_status_and_spec_are_written_separately(ask, replica_set):
    replica_set["status"] = {"replicas": 9}
    made = await ask("POST", SETS, replica_set)
    assert "replicas" not in made.document.get("status", {})
    both = {"spec": {"replicas": 4}, "status": {"replicas": 4}}
    spec = await ask.patch(f"{SETS}/web", both)
    assert spec["spec"]["replicas"] == 4
    assert "replicas" not in spec.document.get("status", {})
    status = await ask.patch(f"{SETS}/web/status", {**both, "spec": {"replicas": 7}})
    assert status["spec"]["replicas"] == 4
    assert status["status"]["replicas"] == 4
    assert status.metadata["generation"] == 2
    shown = await ask("GET", f"{SETS}/web/status")
    assert shown.document == status.document


async def test_the_three_kinds_of_patches(ask, pod, replica_set):
    await ask("POST", PODS, pod)
    strategic = {"content-type": "application/strategic-merge-patch+json"}
    json_patch = {"content-type": "application/json-patch+json"}
    for kind in ("Ready", "Initialized"):
        added = {"status": {"conditions": [{"type": kind, "status": "True"}]}}
        both = await ask.patch(f"{PODS}/pod/status", added, strategic)
        assert both.status == 200, both.text
    kinds = {each["type"] for each in both["status"]["conditions"]}
    assert kinds == {"Ready", "Initialized"}
    operations = [{"op": "add", "path": "/metadata/labels", "value": {"a": "b"}}]
    assert (await ask.patch(f"{PODS}/pod", operations, json_patch)).metadata["labels"] == {"a": "b"}
    await ask("POST", SETS, replica_set)
    refused = await ask.patch(f"{SETS}/web", added, strategic)
    assert refused.status == 415
    assert "accepted media types include: application/json-patch+json" in refused["message"]


async def test_a_patch_that_compares_equal_is_still_validated(ask, replica_set):
    path = f"{SETS}/web"
    replica_set["spec"]["replicas"] = 1
    await ask("POST", SETS, replica_set)
    for number in (True, 1.5, "1"):
        wrong = await ask.patch(path, {"spec": {"replicas": number}})
        assert wrong.status == 422
        assert wrong["details"]["causes"][0]["field"] == "spec.replicas"
    unknown = await ask.patch(path, {"metadata": {"labels": {"a": "b"}}, "more": {}})
    assert unknown.warnings == ['299 - "unknown field \\"more\\""']
    gone = await ask.patch(path, {"spec": None})
    assert gone.status == 422
    kept = await ask.patch(path, {"metadata": {"labels": {"a": "b"}}})
    assert kept["spec"]["replicas"] == 1
    assert kept.metadata["labels"] == {"a": "b"}


async def test_patches_that_cannot_be_applied_are_rejected(ask):
    await ask.create(MAPS, "a")
    json_patch = {"content-type": "application/json-patch+json"}
    tested = [{"op": "test", "path": "/data", "value": {"x": "1"}}]
    assert (await ask.patch(f"{MAPS}/a", tested, json_patch)).status == 422
    assert (await ask.patch(f"{MAPS}/a", b"{", json_patch)).status == 400
    assert (await ask.patch(f"{MAPS}/a", [])).status == 400
    stale = {"metadata": {"resourceVersion": "1"}, "data": {"x": "1"}}
    assert (await ask.patch(f"{MAPS}/a", stale)).status == 409


async def test_a_json_patch_replace_adds_missing_fields_and_warns_of_unknown_ones(
    outside, replica_set
):
    json_patch = {"content-type": "application/json-patch+json"}
    await outside.create(MAPS, "a")
    await outside("POST", SETS, replica_set)
    labels = b"""[{"op": "replace", "path": "/metadata/labels", "value": {"a": "1"}, "more": 1,
                   "path": "/metadata/labels"}]"""
    for path in (f"{MAPS}/a", f"{SETS}/web"):
        patched = await outside.patch(path, labels, json_patch)
        assert patched.status == 200, patched.text
        assert patched.metadata["labels"] == {"a": "1"}
        assert patched.warnings == [
            '299 - "json patch duplicate field \\"[0].path\\""',
            '299 - "json patch unknown field \\"[0].more\\""',
        ]


async def test_a_status_of_native_kinds_may_be_incomplete(ask, pod):
    await ask("POST", PODS, pod)
    terminated = {"state": {"terminated": {"reason": "Completed"}}}
    status = {
        "conditions": [{"type": "Ready"}],
        "containerStatuses": [{"name": "compute", **terminated}],
        "podIPs": [{}],
    }
    shown = await ask.patch(f"{PODS}/pod/status", {"status": status})
    assert shown.status == 200, shown.text
    assert shown["status"]["conditions"] == [{"type": "Ready", "status": ""}]
    assert shown["status"]["podIPs"] == [{"ip": ""}]
    zeros = {"image": "", "imageID": "", "ready": False, "restartCount": 0}
    ended = {"terminated": {"reason": "Completed", "exitCode": 0}}
    assert shown["status"]["containerStatuses"] == [{"name": "compute", "state": ended, **zeros}]
    node = {"metadata": {"name": "n"}, "status": {"nodeInfo": {"kubeletVersion": "v1"}}}
    made = await ask("POST", "/api/v1/nodes", node)
    assert made.status == 201, made.text
    assert made["status"]["nodeInfo"]["kubeletVersion"] == "v1"
    assert made["status"]["nodeInfo"]["machineID"] == ""
    wrong = {"status": {"nodeInfo": {"kubeletVersion": 1}}}
    assert (await ask.patch("/api/v1/nodes/n/status", wrong)).status == 422
    incomplete = {"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "b"}, "spec": {}}
    assert (await ask("POST", PODS, incomplete)).status == 422


async def test_an_applied_status_manages_only_its_fields(ask):
    await ask("POST", "/api/v1/nodes", {"metadata": {"name": "n"}})
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}}
    node["status"] = {"nodeInfo": {"kubeletVersion": "v1"}}
    applied = {"content-type": "application/apply-patch+yaml"}
    shown = await ask("PATCH", "/api/v1/nodes/n/status?fieldManager=me", node, applied)
    assert shown.status == 200, shown.text
    assert shown["status"]["nodeInfo"]["machineID"] == ""
    (mine,) = [e for e in shown.metadata["managedFields"] if e["manager"] == "me"]
    assert mine["fieldsV1"]["f:status"]["f:nodeInfo"] == {"f:kubeletVersion": {}}


async def test_a_node_that_is_uncordoned_says_nothing_of_it(ask):
    """Go omits ``unschedulable`` where it is false, whatever a client wrote."""
    await ask("POST", "/api/v1/nodes", {"metadata": {"name": "n"}})
    for value, spec in ((True, {"unschedulable": True}), (False, {})):
        await ask.patch("/api/v1/nodes/n", {"spec": {"unschedulable": value}})
        node = await ask("GET", "/api/v1/nodes/n")
        assert node["spec"] == spec


async def test_concurrent_patches_all_take_effect(ask):
    await ask.create(MAPS, "a")
    async with asyncio.TaskGroup() as group:
        for number in range(20):
            group.create_task(ask.patch(f"{MAPS}/a", {"data": {f"k{number}": "1"}}))
    assert len((await ask("GET", f"{MAPS}/a"))["data"]) == 20


async def test_other_versions_of_a_kind_are_the_same_object_with_a_warning(ask, machine):
    await ask("POST", MACHINES, machine)
    old = await ask("GET", f"{MACHINES.replace('/v1/', '/v1alpha3/')}/vm")
    new = await ask("GET", f"{MACHINES}/vm")
    assert old["apiVersion"] == "kubevirt.io/v1alpha3"
    assert {**old.document, "apiVersion": "kubevirt.io/v1"} == new.document
    assert old.warnings == [
        '299 - "kubevirt.io/v1alpha3 is now deprecated and will be removed in a future release."'
    ]
    listed = await ask("GET", MACHINES.replace("/v1/", "/v1alpha3/"))
    assert listed["items"][0]["apiVersion"] == "kubevirt.io/v1alpha3"


async def test_events_are_one_storage_in_two_groups(ask):
    await ask(
        "POST",
        "/api/v1/namespaces/default/events",
        {
            "metadata": {"name": "e"},
            "involvedObject": {"kind": "Pod", "name": "pod", "namespace": "default"},
            "message": "hello",
            "reason": "Greeting",
            "type": "Normal",
        },
    )
    other = await ask("GET", "/apis/events.k8s.io/v1/namespaces/default/events/e")
    assert other["apiVersion"] == "events.k8s.io/v1"
    assert other["note"] == "hello"
    assert other["regarding"]["name"] == "pod"
    found = await ask("GET", "/api/v1/events?fieldSelector=involvedObject.name=pod")
    assert found.names == ["e"]
    regarding = await ask("GET", "/apis/events.k8s.io/v1/events?fieldSelector=regarding.name=pod")
    assert regarding.names == ["e"]


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("POST", f"{MAPS}/a", 405),
        ("PUT", MAPS, 405),
        ("PATCH", MAPS, 405),
        ("PUT", SETS, 400),
        ("PATCH", SETS, 400),
        ("TRACE", MAPS, 405),
        ("GET", "/api/v1/configmaps/a", 404),
        ("POST", "/api/v1/configmaps", 405),
        ("DELETE", "/api/v1/configmaps", 405),
        ("GET", "/api/v1/namespaces/default/nodes", 404),
        ("GET", "/api/v1/nosuch", 404),
        ("GET", f"{MAPS}/a/nosuch", 404),
        ("DELETE", f"{SETS}/web/scale", 405),
    ],
)
async def test_unsupported_verbs_are_method_not_allowed(ask, method, path, status):
    refused = await ask(method, path, {"metadata": {"name": "a"}})
    assert refused.status == status, refused.text
    assert refused["kind"] == "Status"


@pytest.mark.parametrize("method", ["POST", "DELETE", "PUT"])
async def test_custom_objects_cannot_be_deleted_in_all_namespaces_at_once(ask, replica_set, method):
    await ask("POST", SETS, replica_set)
    missing = await ask(method, "/apis/kubevirt.io/v1/virtualmachineinstancereplicasets", {})
    assert (missing.status, missing.text) == (404, "404 page not found\n")
    assert (await ask("GET", SETS)).names == ["web"]


async def test_warnings_fit_into_the_head_of_a_response(ask):
    unknown = {"x" * 100 + str(number): 1 for number in range(3000)}
    made = await ask("POST", MAPS, {"metadata": {"name": "a"}, "x" * 1000: 1, **unknown})
    assert made.status == 201
    assert (
        made.warnings[0] == f'299 - "{("unknown field " + chr(92) + chr(34) + "x" * 1000)[:257]}"'
    )
    assert len(made.warnings) > 30
    assert sum(map(len, made.warnings)) < 5000


async def test_duplicate_keys_are_found_in_any_spelling(outside):
    twice = rb'{"metadata":{"name":"a"},"data":{"a":"\u003a","a":"\u003A"}}'
    refused = await outside("POST", f"{MAPS}?fieldValidation=Strict", twice)
    assert refused.status == 400
    assert 'duplicate field "data.a"' in refused["message"]
    await outside.create(MAPS, "a")
    patch = b'{"data":{"x":"1","x":"2"}}'
    refused = await outside.patch(f"{MAPS}/a?fieldValidation=Strict", patch)
    assert refused.status == 422
    assert 'duplicate field "data.x"' in refused["message"]
    assert (await outside.patch(f"{MAPS}/a", patch)).warnings == [
        '299 - "duplicate field \\"data.x\\""'
    ]


async def test_duplicate_keys_in_yaml_follow_field_validation(ask):
    text = b"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {x: one, x: two}\n"
    fault = 'yaml: unmarshal errors:\n  line 4: key "x" already set in map'
    sent = {"content-type": "application/yaml"}
    refused = await ask("POST", f"{MAPS}?fieldValidation=Strict", text, sent)
    assert refused.status == 400
    assert refused["message"].endswith(f"strict decoding error: {fault}")
    made = await ask("POST", f"{MAPS}?fieldValidation=Ignore", text, sent)
    assert made.status == 201
    assert made["data"] == {"x": "two"}
    assert made.warnings == []
    applied = {"content-type": "application/apply-patch+yaml"}
    path = f"{MAPS}/b?fieldManager=me"
    text = text.replace(b"name: a", b"name: b")
    refused = await ask("PATCH", f"{path}&fieldValidation=Strict", text, applied)
    assert refused.status == 400
    assert refused["message"] == f"error strict decoding YAML: {fault}"
    made = await ask("PATCH", path, text, applied)
    assert made.status == 201
    assert made["data"] == {"x": "two"}
    assert made.warnings == [f'299 - "{" ".join(fault.split())}"'.replace('"x"', '\\"x\\"')]


async def test_kinds_without_a_controller_have_no_generation(ask):
    ports = {"spec": {"ports": [{"port": 80}]}}
    service = await ask.create("/api/v1/namespaces/default/services", "a", **ports)
    namespace = await ask.create("/api/v1/namespaces", "b")
    limits = await ask.create("/api/v1/namespaces/default/limitranges", "a", spec={"limits": []})
    for made in (service, namespace, limits):
        assert "generation" not in made["metadata"], made["kind"]
    priority = await ask.create("/apis/scheduling.k8s.io/v1/priorityclasses", "a", value=1)
    hooks = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
    webhooks = await ask.create(hooks, "a", webhooks=[])
    assert (priority["metadata"]["generation"], webhooks["metadata"]["generation"]) == (1, 1)


async def test_quantities_are_stored_in_canonical_form(ask):
    written = {"cpu": "0.5", "memory": "1024Mi", "example.com/a": "1000m", "example.com/b": 1}
    kept = {"cpu": "500m", "memory": "1Gi", "example.com/a": "1", "example.com/b": "1"}
    container = {"name": "c", "image": "x", "resources": {"limits": written}}
    made = await ask.create(PODS, "a", spec={"containers": [container]})
    assert made["spec"]["containers"][0]["resources"]["limits"] == kept
    assert made["spec"]["containers"][0]["resources"]["requests"] == kept
    container["resources"]["limits"] = {"cpu": "0.5x"}
    wrong = {"metadata": {"name": "c"}, "spec": {"containers": [container]}}
    assert "quantities must match" in (await ask("POST", PODS, wrong))["message"]


async def test_an_update_creates_missing_objects_of_a_few_kinds(ask, policy):
    leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
    lease = {"metadata": {"name": "a"}, "spec": {"holderIdentity": "me"}}
    made = await ask("PUT", f"{leases}/a", lease)
    assert made.status == 201
    assert made.metadata["uid"]
    assert (await ask("PUT", f"{leases}/a", lease)).status == 200
    assert (await ask("PUT", f"{MAPS}/a", {"metadata": {"name": "a"}})).status == 404
    limits = "/api/v1/namespaces/default/limitranges"
    wrong = {
        "metadata": {"name": "a"},
        "spec": {"limits": [{"type": "Pod", "default": {"cpu": 1}}]},
    }
    assert (await ask("PUT", f"{limits}/a", wrong)).status == 422
    roles = "/apis/rbac.authorization.k8s.io/v1/namespaces/default"
    rules = [{"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["update"]}]
    await ask.create(f"{roles}/roles", "only-changes", rules=rules)
    binding = {
        "roleRef": {"apiGroup": RBAC, "kind": "Role", "name": "only-changes"},
        "subjects": [{"kind": "User", "name": "ann", "apiGroup": RBAC}],
    }
    await ask.create(f"{roles}/rolebindings", "ann", **binding)
    ann = ask.as_user("ann")
    assert (await ann("PUT", f"{leases}/a", lease)).status == 200
    refused = await ann("PUT", f"{leases}/b", {"metadata": {"name": "b"}})
    assert refused.status == 403
    assert 'cannot create resource "leases"' in refused["message"]


async def test_pods_get_the_default_service_account(ask):
    containers = [{"name": "c", "image": "x"}]
    for name, said, account in (
        ("a", {}, "default"),
        ("b", {"serviceAccountName": "robot"}, "robot"),
        ("c", {"serviceAccount": "robot"}, "robot"),
    ):
        made = await ask.create(PODS, name, spec={"containers": containers, **said})
        spec = made["spec"]
        assert (spec["serviceAccountName"], spec["serviceAccount"]) == (account, account)
        assert "volumes" not in spec
    found = await ask("GET", f"{PODS}?fieldSelector=spec.serviceAccountName=default")
    assert found.names == ["a"]
