"""Webhooks: their reviews, the changes that they may make, and the messages of denials."""

import json

import pytest
from tests.unit.server.admission.dynamic.hooks import GROUP, RULE, allow, deny, patch, unreachable
from tests.unit.server.conftest import MAPS, PODS, SETS

from corral.api.request import Request
from corral.server.authn.authenticator import ADMINISTRATOR

A = {"metadata": {"name": "a"}, "data": {"x": "1"}}


async def test_a_review_has_the_user_operation_and_object(ask, configure):
    hook = await configure("look", allow)
    await ask("POST", f"{MAPS}?fieldManager=me", A)
    (review,) = hook.reviews
    assert hook.paths == ["/?timeout=10s"]
    assert review["operation"] == "CREATE"
    assert review["kind"] == {"group": "", "version": "v1", "kind": "ConfigMap"}
    assert review["resource"] == {"group": "", "version": "v1", "resource": "configmaps"}
    assert review["requestKind"] == review["kind"]
    assert (review["namespace"], review["name"]) == ("default", "a")
    assert review["userInfo"]["username"] == "kubernetes-admin"
    assert review["object"]["data"] == {"x": "1"}
    assert review["object"]["apiVersion"] == "v1"
    assert review["oldObject"] is None
    assert review["dryRun"] is False
    assert review["options"] == {
        "kind": "CreateOptions",
        "apiVersion": "meta.k8s.io/v1",
        "fieldManager": "me",
    }


async def test_reviews_of_updates_and_deletions_have_the_old_object(ask, configure):
    hook = await configure("look", allow)
    await ask("POST", MAPS, A)
    await ask.patch(f"{MAPS}/a", {"data": {"x": "2"}})
    await ask("DELETE", f"{MAPS}/a")
    assert [each["operation"] for each in hook.reviews] == ["CREATE", "UPDATE", "DELETE"]
    _made, changed, gone = hook.reviews
    assert (changed["object"]["data"], changed["oldObject"]["data"]) == ({"x": "2"}, {"x": "1"})
    assert gone["object"] is None
    assert gone["oldObject"]["data"] == {"x": "2"}


async def test_a_denial_names_the_webhook_and_has_its_code_and_reason(ask, configure):
    await configure("never", lambda _: deny(message="not today", code=403, reason="Forbidden"))
    refused = await ask("POST", MAPS, A)
    assert refused.status == 403
    assert refused["reason"] == "Forbidden"
    assert refused["message"] == (
        'admission webhook "never.corral.example" denied the request: not today'
    )
    assert (await ask("GET", f"{MAPS}/a")).status == 404


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        ({}, " without explanation"),
        ({"code": 200}, " without explanation"),
        ({"reason": "Because"}, ": Because"),
    ],
)
async def test_a_denial_without_a_message_has_the_reason(ask, configure, status, reason):
    await configure("never", lambda _: deny(**status))
    refused = await ask("POST", MAPS, A)
    assert refused.status == 400
    assert refused["message"] == (
        f'admission webhook "never.corral.example" denied the request{reason}'
    )


async def test_a_webhook_can_mutate_and_warn(ask, configure):
    change = {"op": "add", "path": "/data/y", "value": "2"}
    await configure(
        "change", lambda _: {**patch(change), "warnings": ["look out"]}, kind="Mutating"
    )
    made = await ask("POST", MAPS, A)
    assert made["data"] == {"x": "1", "y": "2"}
    assert made.warnings == ['299 - "look out"']


async def test_a_mutated_object_must_be_valid(ask, configure):
    change = {"op": "add", "path": "/data/y", "value": 2}
    await configure("change", lambda _: patch(change), kind="Mutating")
    assert (await ask("POST", MAPS, A)).status in (400, 422)
    assert (await ask("GET", f"{MAPS}/a")).status == 404


async def test_validating_webhooks_see_the_mutated_object(ask, configure):
    change = {"op": "add", "path": "/data/y", "value": "2"}
    await configure("change", lambda _: patch(change), kind="Mutating")
    hook = await configure("look", allow)
    await ask("POST", MAPS, A)
    assert hook.reviews[0]["object"]["data"] == {"x": "1", "y": "2"}
    assert hook.reviews[0]["object"]["metadata"]["uid"]


async def test_an_earlier_webhook_is_reinvoked_if_needed_after_a_later_mutation(ask, configure):
    first = await configure("a", allow, kind="Mutating", reinvocationPolicy="IfNeeded")
    never = await configure("b", allow, kind="Mutating")
    change = {"op": "add", "path": "/data/y", "value": "2"}
    last = await configure("c", lambda _: patch(change), kind="Mutating")
    await ask("POST", MAPS, A)
    assert (len(first.reviews), len(never.reviews), len(last.reviews)) == (2, 1, 1)
    assert first.reviews[1]["object"]["data"] == {"x": "1", "y": "2"}


async def test_an_unreachable_webhook_denies_unless_its_failure_policy_is_ignore(ask, configure):
    await configure("gone", unreachable)
    refused = await ask("POST", MAPS, A)
    assert refused.status == 500
    assert refused["message"] == (
        'Internal error occurred: failed calling webhook "gone.corral.example": failed to call '
        'webhook: Post "https://gone/?timeout=10s": connect: connection refused'
    )
    await ask.patch(
        f"{GROUP}/validatingwebhookconfigurations/gone",
        [{"op": "replace", "path": "/webhooks/0/failurePolicy", "value": "Ignore"}],
        {"content-type": "application/json-patch+json"},
    )
    assert (await ask("POST", MAPS, A)).status == 201


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ({"allowed": True, "uid": "other"}, "expected response.uid="),
        ((200, b"{}"), "webhook response was absent"),
        ((200, b"no"), "couldn't decode the review: Input data was truncated"),
        ((404, b""), "it answered with status 404"),
        ({"allowed": True, "patch": "W10="}, "response.patch but not response.patchType"),
        ({"allowed": True, "patchType": "JSONPatch", "patch": "!"}, "undecodable patch"),
    ],
)
async def test_an_invalid_review_is_a_failure(ask, configure, said, message):
    await configure("odd", lambda _: said, kind="Mutating")
    refused = await ask("POST", MAPS, A)
    assert refused.status == 500
    assert 'failed calling webhook "odd.corral.example"' in refused["message"]
    assert message in refused["message"]


async def test_selectors_and_rules_decide_which_requests_are_reviewed(ask, configure):
    labelled = {"matchLabels": {"watched": "yes"}}
    by_object = await configure("objects", allow, objectSelector=labelled)
    by_namespace = await configure("spaces", allow, namespaceSelector=labelled)
    of_pods = await configure("pods", allow, rules=[{**RULE, "resources": ["pods", "pods/*"]}])
    await ask("POST", MAPS, A)
    await ask.patch("/api/v1/namespaces/default", {"metadata": {"labels": {"watched": "yes"}}})
    await ask("POST", MAPS, {"metadata": {"name": "b", "labels": {"watched": "yes"}}})
    assert [each["name"] for each in by_object.reviews] == ["b"]
    assert [each["name"] for each in by_namespace.reviews] == ["b"]
    assert not of_pods.reviews


async def test_match_conditions_decide_which_requests_are_reviewed(ask, configure):
    condition = {"name": "big", "expression": "object.data.x == '2' && request.name != 'b'"}
    hook = await configure("big", allow, matchConditions=[condition])
    await ask("POST", MAPS, A)
    await ask("POST", MAPS, {"metadata": {"name": "b"}, "data": {"x": "2"}})
    await ask("POST", MAPS, {"metadata": {"name": "c"}, "data": {"x": "2"}})
    assert [each["name"] for each in hook.reviews] == ["c"]
    refused = await ask("POST", MAPS, {"metadata": {"name": "d"}})
    assert refused.status == 403
    assert "expression 'object.data.x == '2'" in refused["message"]
    assert "no such key: data" in refused["message"]


async def test_a_rule_for_one_version_matches_equivalent_versions(ask, configure):
    rule = {
        "apiGroups": ["autoscaling"],
        "apiVersions": ["v1"],
        "resources": ["horizontalpodautoscalers"],
        "operations": ["CREATE"],
    }
    change = {"op": "replace", "path": "/spec/maxReplicas", "value": 7}
    hook = await configure("old", lambda _: patch(change), kind="Mutating", rules=[rule])
    exact = await configure("exact", allow, kind="Mutating", rules=[rule], matchPolicy="Exact")
    target = {"kind": "Deployment", "name": "a", "apiVersion": "apps/v1"}
    metric = {
        "type": "Resource",
        "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}},
    }
    made = await ask(
        "POST",
        "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers",
        {
            "metadata": {"name": "a"},
            "spec": {"scaleTargetRef": target, "maxReplicas": 3, "metrics": [metric]},
        },
    )
    assert made.status == 201, made.text
    assert made["apiVersion"] == "autoscaling/v2"
    assert made["spec"]["maxReplicas"] == 7
    assert made["spec"]["metrics"][0]["resource"]["target"]["averageUtilization"] == 50
    (review,) = hook.reviews
    assert review["kind"]["version"] == "v1"
    assert review["requestKind"]["version"] == "v2"
    assert review["object"]["spec"]["targetCPUUtilizationPercentage"] == 50
    assert not exact.reviews


async def test_scale_is_reviewed_as_a_scale(ask, configure, replica_set):
    rule = {
        "apiGroups": ["kubevirt.io"],
        "apiVersions": ["v1"],
        "resources": ["virtualmachineinstancereplicasets/scale"],
        "operations": ["UPDATE"],
    }
    hook = await configure("scale", lambda _: deny(message="no"), rules=[rule])
    await ask("POST", SETS, replica_set)
    refused = await ask.patch(f"{SETS}/web/scale", {"spec": {"replicas": 2}})
    assert refused.status == 400
    (review,) = hook.reviews
    assert review["kind"] == {"group": "autoscaling", "version": "v1", "kind": "Scale"}
    assert review["subResource"] == "scale"
    assert review["object"]["spec"] == {"replicas": 2}
    assert review["oldObject"]["spec"] == {"replicas": 3}


async def test_reviews_of_dry_runs_say_so_and_nothing_is_stored(ask, configure):
    hook = await configure("look", allow)
    assert (await ask("POST", f"{MAPS}?dryRun=All", A)).status == 201
    assert hook.reviews[0]["dryRun"] is True
    assert (await ask("GET", f"{MAPS}/a")).status == 404


def once(meddle):
    """Change the object once, but not during the review of that change."""
    begun = []

    async def act():
        if not begun:
            begun.append(True)
            await meddle()

    return act


async def test_an_update_is_retried_if_the_object_changed_during_the_review(ask, configure):
    await ask("POST", MAPS, A)
    hook = await configure(
        "slow", allow, meanwhile=once(lambda: ask.patch(f"{MAPS}/a", {"data": {"z": "3"}}))
    )
    changed = await ask.patch(f"{MAPS}/a", {"data": {"x": "2"}})
    assert changed["data"] == {"x": "2", "z": "3"}
    assert len(hook.reviews) == 3  # this one, the meddler's, and this one anew
    assert hook.reviews[-1]["oldObject"]["data"] == {"x": "1", "z": "3"}


async def test_an_update_of_a_version_outdated_during_the_review_is_a_conflict(ask, configure):
    made = await ask("POST", MAPS, A)
    await configure(
        "slow", allow, meanwhile=once(lambda: ask.patch(f"{MAPS}/a", {"data": {"z": "3"}}))
    )
    refused = await ask("PUT", f"{MAPS}/a", {**made.document, "data": {}})
    assert refused.status == 409
    assert (await ask("GET", f"{MAPS}/a"))["data"] == {"x": "1", "z": "3"}


async def test_a_name_created_during_the_review_already_exists(ask, configure):
    await configure("slow", allow, meanwhile=once(lambda: ask("POST", MAPS, A)))
    refused = await ask("POST", MAPS, {**A, "data": {"x": "other"}})
    assert (refused.status, refused["reason"]) == (409, "AlreadyExists")


async def test_a_denied_deletion_keeps_the_object(ask, configure):
    await ask("POST", MAPS, A)
    await ask("POST", MAPS, {"metadata": {"name": "b"}})

    def keep_a(request):
        return deny(message="kept") if request["name"] == "a" else {"allowed": True}

    await configure("keep", keep_a, rules=[{**RULE, "operations": ["DELETE"]}])
    assert (await ask("DELETE", f"{MAPS}/a")).status == 400
    assert (await ask("DELETE", MAPS)).status == 400
    assert (await ask("GET", MAPS)).names == ["a"]


async def test_webhook_configurations_are_never_reviewed(ask, configure):
    rule = {**RULE, "apiGroups": ["*"], "resources": ["*/*"]}
    await configure("all", lambda _: deny(message="no"), rules=[rule])
    assert (await ask("POST", MAPS, A)).status == 400
    gone = await ask("DELETE", f"{GROUP}/validatingwebhookconfigurations/all")
    assert gone.status == 200
    assert (await ask("POST", MAPS, A)).status == 201


async def test_mutations_and_audit_annotations_of_webhooks_are_in_the_audit_log(ask, configure):
    change = {"op": "add", "path": "/data/y", "value": "2"}
    said = {**patch(change), "auditAnnotations": {"why": "because"}}
    await configure("change", lambda _: said, kind="Mutating")
    await configure("gone", unreachable, kind="Mutating", failurePolicy="Ignore")
    request = Request(method="POST", path=MAPS, body=json.dumps(A).encode(), user=ADMINISTRATOR)
    assert (await ask.server.handle(request)).status == 201
    notes = request.annotations
    assert notes["change.corral.example/why"] == "because"
    first = json.loads(notes["mutation.webhook.admission.k8s.io/round_0_index_0"])
    assert first == {"configuration": "change", "webhook": "change.corral.example", "mutated": True}
    note = "failed-open.mutation.webhook.admission.k8s.io/gone.corral.example"
    assert notes[note] == "gone.corral.example"


async def test_mutations_of_webhooks_have_no_field_manager(ask, configure):
    await configure("look", allow)
    change = {"op": "add", "path": "/data/y", "value": "2"}
    await configure("change", lambda _: patch(change), kind="Mutating")
    made = await ask("POST", f"{MAPS}?fieldManager=me", A)
    assert made["data"] == {"x": "1", "y": "2"}
    (entry,) = made.metadata["managedFields"]
    assert (entry["manager"], entry["operation"]) == ("me", "Update")
    assert entry["fieldsV1"] == {"f:data": {".": {}, "f:x": {}}}
    changed = await ask.patch(f"{MAPS}/a?fieldManager=you", {"data": {"x": "3", "y": "9"}})
    assert changed["data"] == {"x": "3", "y": "2"}
    account = {each["manager"]: each["fieldsV1"] for each in changed.metadata["managedFields"]}
    assert account == {"me": {"f:data": {}}, "you": {"f:data": {"f:x": {}, "f:y": {}}}}


async def test_an_allocated_node_port_stays_allocated_during_the_review(ask, configure):
    rule = {**RULE, "resources": ["services"]}
    hook = await configure("look", allow, rules=[rule])
    spec = {"type": "NodePort", "ports": [{"port": 80}], "selector": {"a": "b"}}
    made = await ask(
        "POST", "/api/v1/namespaces/default/services", {"metadata": {"name": "a"}, "spec": spec}
    )
    assert made.status == 201, made.text
    (review,) = hook.reviews
    assert made["spec"]["clusterIP"] == review["object"]["spec"]["clusterIP"]
    assert made["spec"]["ports"] == review["object"]["spec"]["ports"]


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_exec_into_a_pod_is_reviewed_as_connect(ask, configure, pod, method):
    rule = {**RULE, "resources": ["pods/exec"], "operations": ["CONNECT"]}
    hook = await configure("shell", lambda _: deny(message="no", code=403), rules=[rule])
    made = await ask("POST", PODS, pod)
    name = made.metadata["name"]
    refused = await ask(method, f"{PODS}/{name}/exec?command=ls&command=-l&stdin=true")
    assert (refused.status, refused["message"]) == (
        403,
        'admission webhook "shell.corral.example" denied the request: no',
    )
    (review,) = hook.reviews
    assert (review["operation"], review["subResource"]) == ("CONNECT", "exec")
    assert review["kind"] == {"group": "", "version": "v1", "kind": "PodExecOptions"}
    assert review["object"]["command"] == ["ls", "-l"]
    assert review["object"]["stdin"] is True
    await ask("GET", f"{PODS}/{name}/log")
    assert len(hook.reviews) == 1


QUESTION = {"spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}}}


async def test_requests_of_kinds_that_are_not_stored_are_reviewed(ask, configure):
    group = "authorization.k8s.io"
    rule = {**RULE, "apiGroups": [group], "resources": ["*"], "operations": ["CREATE"]}
    change = {"op": "replace", "path": "/spec/resourceAttributes/verb", "value": "list"}
    changing = await configure("change", lambda _: patch(change), kind="Mutating", rules=[rule])
    last = await configure("last", allow, rules=[rule])
    path = f"/apis/{group}/v1/selfsubjectaccessreviews"
    answer = await ask("POST", path, QUESTION)
    assert (answer.status, answer["status"]["allowed"]) == (201, True)
    assert answer["spec"]["resourceAttributes"]["verb"] == "list"
    assert changing.reviews[0]["object"]["spec"]["resourceAttributes"]["verb"] == "get"
    assert last.reviews[0]["object"]["spec"]["resourceAttributes"]["verb"] == "list"
    assert last.reviews[0]["kind"]["kind"] == "SelfSubjectAccessReview"


async def test_upload_token_requests_are_reviewed(ask, configure):
    group = "upload.cdi.kubevirt.io"
    rule = {**RULE, "apiGroups": [group], "apiVersions": ["*"], "resources": ["*"]}
    await configure("never", lambda _: deny(message="no", code=403), rules=[rule])
    path = f"/apis/{group}/v1beta1/namespaces/default/uploadtokenrequests"
    body = {"metadata": {"name": "a"}, "spec": {"pvcName": "a"}}
    refused = await ask("POST", path, body)
    assert (refused.status, refused["message"]) == (
        403,
        'admission webhook "never.corral.example" denied the request: no',
    )
