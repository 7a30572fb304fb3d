"""Writes: identity, conflicts, patches, subresources, deletion."""

import re

import pytest
from tests.conformance.api import (
    JSON_PATCH,
    KUBEVIRT,
    MERGE,
    STRATEGIC,
    conditions,
    refused,
    until,
)
from tests.conformance.manifests import config_map, core, machine, machines, replica_set, sets

pytestmark = pytest.mark.conformance


@pytest.fixture
def one(api, namespace) -> str:
    """The path of a replica set of none, which its controller has done with."""
    api.create(sets(namespace), replica_set("one", 0))
    path = sets(namespace, "one")
    until("the set is settled", lambda: "labelSelector" in api.get_document(path).get("status", {}))
    return path


def test_the_server_sets_uid_and_creation_time(api, namespace):
    document = config_map("x")
    document["metadata"] |= {"uid": "mine", "generation": 7, "creationTimestamp": None}
    metadata = api.create(core("configmaps", namespace), document)["metadata"]
    assert metadata["namespace"] == namespace
    assert re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", metadata["uid"])
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", metadata["creationTimestamp"])
    assert metadata["resourceVersion"].isdigit()
    changed = {"metadata": {"uid": "other", "creationTimestamp": "2001-01-01T00:00:00Z"}}
    answer = api.send_patch(core("configmaps", namespace, "x"), changed)
    refused(answer, 422, "Invalid")


def test_names_are_generated(api, namespace):
    made = [api.create(core("configmaps", namespace), config_map()) for _ in range(5)]
    suffixes = {one["metadata"]["name"].removeprefix("made-") for one in made}
    assert len(suffixes) == 5
    assert all(re.fullmatch("[bcdfghjklmnpqrstvwxz2456789]{5}", one) for one in suffixes)
    assert made[0]["metadata"]["generateName"] == "made-"
    long = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "x" * 100}}
    name = api.create(core("configmaps", namespace), long)["metadata"]["name"]
    assert len(name) == 63


def test_a_second_object_of_a_name_already_exists(api, namespace):
    path = core("configmaps", namespace)
    api.create(path, config_map("x"))
    status = refused(api.post(path, json=config_map("x")), 409, "AlreadyExists")
    assert status["message"] == 'configmaps "x" already exists'
    assert status["details"] == {"name": "x", "kind": "configmaps"}


def test_a_revision_on_create_is_an_error(api, namespace):
    document = config_map("x")
    document["metadata"]["resourceVersion"] = "7"
    answer = api.post(core("configmaps", namespace), json=document)
    assert answer.status_code == 400
    assert answer.json()["message"] == (
        "resourceVersion should not be set on objects to be created"
    )


def test_a_stale_revision_is_a_conflict(api, one):
    old = api.get_document(one)
    api.change(one, {"metadata": {"labels": {"x": "y"}}})
    status = refused(api.put(one, json=old), 409, "Conflict")
    assert status["message"] == (
        "Operation cannot be fulfilled on virtualmachineinstancereplicasets.kubevirt.io "
        '"one": the object has been modified; please apply your changes to the latest version '
        "and try again"
    )
    assert status["details"]["kind"] == "virtualmachineinstancereplicasets"
    revision = {"metadata": {"resourceVersion": old["metadata"]["resourceVersion"]}}
    refused(api.send_patch(one, revision | {"spec": {"replicas": 1}}), 409, "Conflict")


def test_an_update_of_a_custom_kind_needs_a_revision(api, one):
    document = api.get_document(one)
    del document["metadata"]["resourceVersion"]
    status = refused(api.put(one, json=document), 422, "Invalid")
    assert (
        "metadata.resourceVersion: Invalid value: 0: must be specified for an update"
        in (status["message"])
    )


def test_an_update_of_a_native_kind_needs_none(api, namespace):
    api.create(core("configmaps", namespace), config_map("x"))
    path = core("configmaps", namespace, "x")
    assert api.replace(path, config_map("x", a="1"))["data"] == {"a": "1"}


def test_an_update_of_a_missing_object(api, namespace):
    answer = api.put(core("configmaps", namespace, "x"), json=config_map("x"))
    refused(answer, 404, "NotFound")
    refused(api.send_patch(core("configmaps", namespace, "x"), {}), 404, "NotFound")


def test_the_generation_counts_changes_of_the_spec(api, one):
    before = api.get_document(one)["metadata"]["generation"]
    labeled = api.change(one, {"metadata": {"labels": {"x": "y"}}})
    assert labeled["metadata"]["generation"] == before
    scaled = api.change(one, {"spec": {"paused": True}})
    assert scaled["metadata"]["generation"] == before + 1
    status = api.change(f"{one}/status", {"status": {"conditions": []}})
    assert status["metadata"]["generation"] == before + 1


@pytest.mark.parametrize(
    ("media", "patch", "expected"),
    [
        (MERGE, {"data": {"a": None, "c": "3"}}, {"b": "2", "c": "3"}),
        (MERGE, {"data": None}, None),
        (STRATEGIC, {"data": {"a": None, "c": "3"}}, {"b": "2", "c": "3"}),
        (STRATEGIC, {"data": {"$patch": "replace", "c": "3"}}, {"c": "3"}),
        (JSON_PATCH, [{"op": "add", "path": "/data/c", "value": "3"}],
         {"a": "1", "b": "2", "c": "3"}),
        (JSON_PATCH, [{"op": "remove", "path": "/data/a"}], {"b": "2"}),
        (JSON_PATCH, [{"op": "move", "from": "/data/a", "path": "/data/z"}], {"b": "2", "z": "1"}),
        (JSON_PATCH, [{"op": "copy", "from": "/data/a", "path": "/data/b"}], {"a": "1", "b": "1"}),
        (JSON_PATCH, [], {"a": "1", "b": "2"}),
    ],
)  # fmt: skip
def test_patches(api, namespace, media, patch, expected):
    api.create(core("configmaps", namespace), config_map("x", a="1", b="2"))
    path = core("configmaps", namespace, "x")
    tried = api.change(path, patch, media, dryRun="All")
    assert tried.get("data") == expected
    assert api.get_document(path)["data"] == {"a": "1", "b": "2"}
    assert api.change(path, patch, media).get("data") == expected
    assert api.get_document(path).get("data") == expected


@pytest.mark.parametrize(
    ("patch", "code"),
    [
        ([{"op": "test", "path": "/data/a", "value": "2"}], 422),
        ([{"op": "remove", "path": "/data/nosuch"}], 422),
        ([{"op": "replace", "path": "/nosuch/x", "value": 1}], 422),
        ([{"op": "jump", "path": "/data"}], (400, 422)),
        ([{"op": "add"}], (400, 422)),
        ({"op": "add"}, 400),
        (["add"], (400, 422)),
        ([{"op": "add", "path": "data", "value": 1}], (400, 422)),
    ],
)
def test_json_patches_that_cannot_be_applied(api, namespace, patch, code):
    api.create(core("configmaps", namespace), config_map("x", a="1"))
    answer = api.send_patch(core("configmaps", namespace, "x"), patch, JSON_PATCH)
    assert answer.status_code in (code if isinstance(code, tuple) else (code,)), answer.text
    assert answer.json()["kind"] == "Status"


def test_a_patch_of_too_many_operations_is_rejected(api, namespace):
    api.create(core("configmaps", namespace), config_map("x", a="1"))
    patch = [{"op": "copy", "from": "/data", "path": "/data/b"}] * 20_000
    answer = api.send_patch(core("configmaps", namespace, "x"), patch, JSON_PATCH)
    assert answer.status_code in (400, 413, 422), answer.status_code


def test_a_strategic_patch_is_for_native_kinds(api, one):
    status = refused(api.send_patch(one, {}, STRATEGIC), 415, "UnsupportedMediaType")
    assert status["message"].startswith(
        "the body of the request was in an unknown format - accepted media types include: "
        "application/json-patch+json, application/merge-patch+json"
    )


def test_status_and_spec_are_written_separately(api, one):
    document = api.get_document(one)
    document["spec"]["paused"] = True
    document["status"] = {"labelSelector": "of=mine"}
    kept = api.replace(one, document)
    assert kept["spec"]["paused"] is True
    assert kept.get("status", {}).get("labelSelector") != "of=mine"
    paused = until("the controller paused", lambda: conditions(api.get_document(one)))
    assert list(paused) == ["ReplicaPaused"]
    kept = api.get_document(one)
    kept["spec"]["paused"] = False
    kept["status"] = {"conditions": [{"type": "Mine", "status": "True"}]}
    kept = api.replace(f"{one}/status", kept)
    assert kept["spec"]["paused"] is True
    assert [one["type"] for one in kept["status"]["conditions"]] == ["Mine"]


def test_users_cannot_write_the_status_of_a_vmi(api, namespace):
    api.create(machines(namespace), machine("x"))
    changed = api.change(machines(namespace, "x"), {"status": {"phase": "Failed"}})
    assert changed["status"]["phase"] != "Failed"
    refused(
        api.send_patch(machines(namespace, "x"), {"spec": {"hostname": "other"}}), 422, "Invalid"
    )


def test_scale_is_read_and_written(api, one, namespace):
    scale = api.get_document(f"{one}/scale")
    whole = api.get_document(one)["metadata"]
    assert (scale["kind"], scale["apiVersion"]) == ("Scale", "autoscaling/v1")
    assert scale["spec"] == {}  # as the real server leaves a zero out
    assert scale["metadata"] == {
        "name": "one", "namespace": namespace, "uid": whole["uid"],
        "resourceVersion": scale["metadata"]["resourceVersion"],
        "creationTimestamp": whole["creationTimestamp"],
    }  # fmt: skip
    scale["spec"]["replicas"] = 2
    assert api.replace(f"{one}/scale", scale)["spec"]["replicas"] == 2
    assert api.get_document(one)["spec"]["replicas"] == 2
    assert api.get_document(one)["metadata"]["generation"] == 2
    refused(api.put(f"{one}/scale", json=scale), 409, "Conflict")
    del scale["metadata"]["resourceVersion"]
    scale["spec"]["replicas"] = 1
    assert api.replace(f"{one}/scale", scale)["spec"]["replicas"] == 1
    assert api.change(f"{one}/scale", {"spec": {"replicas": 0}})["spec"] == {}
    status = refused(api.send_patch(f"{one}/scale", {"spec": {"replicas": -1}}), 422, "Invalid")
    assert "should be a non-negative integer" in status["message"]
    refused(api.send_patch(f"{one}/scale", {"spec": {"replicas": "many"}}), 400, "BadRequest")
    refused(api.get(sets(namespace, "nosuch", "scale")), 404, "NotFound")


def test_scale_without_a_content_type_is_json(api, one):
    scale = api.get_document(f"{one}/scale")
    request = api.build_request("PUT", f"{one}/scale", json=scale | {"spec": {"replicas": 1}})
    del request.headers["Content-Type"]
    assert api.send(request).json()["spec"] == {"replicas": 1}


def test_a_dry_run_stores_nothing(api, namespace, one):
    api.create(core("configmaps", namespace), config_map("tried"), dryRun="All")
    refused(api.get(core("configmaps", namespace, "tried")), 404, "NotFound")
    before = api.get_document(one)
    assert api.change(one, {"spec": {"replicas": 5}}, dryRun="All")["spec"]["replicas"] == 5
    assert api.change(f"{one}/scale", {"spec": {"replicas": 5}}, dryRun="All")["spec"] == {
        "replicas": 5
    }
    api.remove(one, dryRun="All")
    api.remove(one, {"dryRun": ["All"]})
    assert api.get_document(one)["spec"] == before["spec"]


def test_the_response_of_a_deletion(api, namespace, one):
    status = api.remove(one)
    assert (status["kind"], status["status"]) == ("Status", "Success")
    assert status["details"]["name"] == "one"
    assert status["details"]["group"] == "kubevirt.io"
    assert status["details"]["kind"] == "virtualmachineinstancereplicasets"
    assert status["details"]["uid"]
    refused(api.send_delete(one), 404, "NotFound")


def test_a_deletion_can_have_preconditions(api, namespace):
    made = api.create(core("configmaps", namespace), config_map("x"))
    path = core("configmaps", namespace, "x")
    refused(api.send_delete(path, {"preconditions": {"uid": "other"}}), 409, "Conflict")
    status = refused(
        api.send_delete(path, {"preconditions": {"resourceVersion": "1"}}), 409, "Conflict"
    )
    assert "the ResourceVersion in the precondition (1) does not match" in status["message"]
    api.remove(path, {"preconditions": {"uid": made["metadata"]["uid"]}})


def test_finalizers_delay_a_deletion(api, namespace):
    document = config_map("x")
    document["metadata"]["finalizers"] = ["example.com/hold"]
    api.create(core("configmaps", namespace), document)
    path = core("configmaps", namespace, "x")
    held = api.remove(path)
    assert (held["kind"], held["metadata"]["name"]) == ("ConfigMap", "x")
    assert held["metadata"]["deletionTimestamp"]
    again = api.remove(path)
    assert again["metadata"]["deletionTimestamp"] == held["metadata"]["deletionTimestamp"]
    more = {"metadata": {"finalizers": ["example.com/hold", "example.com/more"]}}
    assert api.send_patch(path, more).status_code in (403, 422)
    api.change(path, {"metadata": {"finalizers": None}})
    refused(api.get(path), 404, "NotFound")


@pytest.mark.parametrize(
    "options",
    [{"propagationPolicy": "Sideways"}, {"gracePeriodSeconds": "x"}, {"dryRun": ["Some"]}],
)
def test_invalid_delete_options(api, one, options):
    answer = api.send_delete(one, options)
    assert answer.status_code in (400, 422), answer.text
    assert api.get(one).status_code == 200


def test_a_namespace_must_exist(api):
    answer = api.post(core("configmaps", "nosuch"), json=config_map("x"))
    status = refused(answer, 404, "NotFound")
    assert status["message"] == 'namespaces "nosuch" not found'
    answer = api.post(f"{KUBEVIRT}/virtualmachineinstances", json=machine("x"))
    assert answer.status_code == 404


def test_nothing_is_created_in_a_terminating_namespace(api, namespace):
    document = config_map("x")
    document["metadata"]["finalizers"] = ["example.com/hold"]
    name = f"{namespace}-ending"
    api.create(core("namespaces"), {"metadata": {"name": name}})
    api.create(core("configmaps", name), document)
    ending = api.remove(core("namespaces", name=name))
    assert ending["status"]["phase"] == "Terminating"
    status = refused(api.post(core("configmaps", name), json=config_map("y")), 403, "Forbidden")
    assert "because it is being terminated" in status["message"]
    assert status["details"]["causes"][0]["reason"] == "NamespaceTerminating"
    again = api.post(core("namespaces"), json={"metadata": {"name": name}})
    assert refused(again, 409, "AlreadyExists")["message"] == (
        f'object is being deleted: namespaces "{name}" already exists'
    )
    api.change(core("configmaps", name, "x"), {"metadata": {"finalizers": []}})


def test_labels_and_annotations_are_validated(api, namespace):
    for field, value in (
        ("labels", {"-bad": "x"}),
        ("labels", {"a": "not allowed!"}),
        ("labels", {"a": "x" * 64}),
        ("annotations", {"-bad": "x"}),
        ("annotations", {"a": "x" * 300_000}),
        ("finalizers", ["not qualified!"]),
        ("ownerReferences", [{"kind": "x"}]),
    ):
        document = config_map("x")
        document["metadata"][field] = value
        answer = api.post(core("configmaps", namespace), json=document)
        status = refused(answer, 422, "Invalid")
        assert all(
            cause["field"].startswith(f"metadata.{field}") for cause in status["details"]["causes"]
        )


def test_a_deprecated_version_warns_on_every_verb(api, namespace):
    old = sets(namespace).replace("/v1/", "/v1alpha3/")
    warning = (
        '299 - "kubevirt.io/v1alpha3 is now deprecated and will be removed in a future release."'
    )
    document = replica_set("old", 0) | {"apiVersion": "kubevirt.io/v1alpha3"}
    answers = [
        api.post(old, json=document),
        api.get(old),
        api.get(f"{old}/old"),
        api.send_patch(f"{old}/old", {"spec": {"paused": True}}),
        api.get(f"{old}/old/scale"),
        api.send_delete(f"{old}/old"),
    ]
    for answer in answers:
        assert answer.status_code < 300, answer.text
        assert warning in answer.headers.get_list("warning")
    assert answers[0].json()["apiVersion"] == "kubevirt.io/v1alpha3"


def test_both_groups_of_events_have_the_same_objects(api, namespace):
    about = {"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "namespace": namespace}
    api.create(
        core("events", namespace),
        {
            "metadata": {"name": "e"}, "involvedObject": about, "reason": "Tested",
            "message": "it was", "type": "Normal",
        },
    )  # fmt: skip
    other = api.get_document(f"/apis/events.k8s.io/v1/namespaces/{namespace}/events/e")
    assert (other["note"], other["regarding"]["name"]) == ("it was", "x")
    found = api.items(
        core("events", namespace), fieldSelector="involvedObject.name=x,reason=Tested"
    )
    assert [one["metadata"]["name"] for one in found] == ["e"]
    misplaced = {"metadata": {"name": "f"}, "involvedObject": about | {"namespace": "other"}}
    refused(api.post(core("events", namespace), json=misplaced), 422, "Invalid")
