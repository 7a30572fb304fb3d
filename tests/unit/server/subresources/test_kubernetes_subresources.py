"""Tests of scale, binding, finalize and the errors before a stream begins."""

import pytest
from tests.unit.server.conftest import MACHINES, PODS, SETS, STRATEGIC

CONSOLE = "/apis/subresources.kubevirt.io/v1/namespaces/default/virtualmachineinstances/{}/console"
SPACE = "/api/v1/namespaces/default"
UPGRADE = {"upgrade": "websocket", "connection": "Upgrade"}
BIND = {"target": {"kind": "Node", "name": "one"}}


async def test_scale_reads_and_writes_replicas(ask, replica_set):
    made = await ask("POST", SETS, replica_set)
    shown = await ask("GET", f"{SETS}/web/scale")
    assert shown["kind"] == "Scale"
    assert shown["apiVersion"] == "autoscaling/v1"
    assert shown.metadata["uid"] == made.metadata["uid"]
    assert shown["spec"] == {"replicas": 3}
    assert shown["status"] == {"replicas": 0}
    changed = await ask.patch(f"{SETS}/web/scale", {"spec": {"replicas": 5}})
    assert changed["spec"] == {"replicas": 5}
    whole = await ask("GET", f"{SETS}/web")
    assert whole["spec"]["replicas"] == 5
    assert whole.metadata["generation"] == 2
    assert whole.metadata["resourceVersion"] == changed.metadata["resourceVersion"]


async def test_a_strategic_merge_patch_of_a_scale_may_have_the_kind_of_its_object(ask):
    deployments = "/apis/apps/v1/namespaces/default/deployments"
    labels, containers = {"app": "web"}, [{"name": "web", "image": "web"}]
    template = {"metadata": {"labels": labels}, "spec": {"containers": containers}}
    await ask.create(deployments, "web", spec={
        "selector": {"matchLabels": labels}, "template": template,
    })  # fmt: skip
    patch = {"kind": "Deployment", "metadata": {"name": "web"}, "spec": {"replicas": 3}}
    scaled = await ask.patch(f"{deployments}/web/scale", patch, STRATEGIC)
    assert (scaled["kind"], scaled["spec"]) == ("Scale", {"replicas": 3})
    assert (await ask("GET", f"{deployments}/web"))["spec"]["replicas"] == 3
    assert (await ask.patch(f"{deployments}/web/scale", patch)).status == 400


async def test_scale_has_a_table(ask, replica_set):
    await ask("POST", SETS, replica_set)
    await ask.patch(f"{SETS}/web/status", {"status": {"replicas": 2}})
    accept = "application/json;as={};v=v1;g=meta.k8s.io,application/json"
    shown = await ask("GET", f"{SETS}/web/scale", headers={"accept": accept.format("Table")})
    assert shown["kind"] == "Table"
    columns = [column["name"] for column in shown["columnDefinitions"]]
    assert columns == ["Name", "Desired", "Available", "Age"]
    (row,) = shown["rows"]
    assert row["cells"][:3] == ["web", 3, 2]
    assert row["object"]["kind"] == "PartialObjectMetadata"
    whole = f"{SETS}/web/scale?includeObject=Object"
    shown = await ask("GET", whole, headers={"accept": accept.format("Table")})
    assert shown["rows"][0]["object"]["kind"] == "Scale"
    alone = await ask(
        "GET", f"{SETS}/web/scale", headers={"accept": accept.format("PartialObjectMetadata")}
    )
    assert alone["kind"] == "PartialObjectMetadata"
    assert alone.metadata["name"] == "web"


async def test_scale_has_the_selector_of_the_status(ask, replica_set):
    await ask("POST", SETS, replica_set)
    status = {"status": {"replicas": 2, "labelSelector": "app=web"}}
    await ask.patch(f"{SETS}/web/status", status)
    shown = await ask("GET", f"{SETS}/web/scale")
    assert shown["status"] == {"replicas": 2, "selector": "app=web"}


async def test_scale_to_zero_leaves_the_spec_empty(ask, replica_set):
    await ask("POST", SETS, replica_set)
    zero = await ask("PUT", f"{SETS}/web/scale", {"metadata": {"name": "web"}, "spec": {}})
    assert zero.status == 200
    assert zero["spec"] == {}
    assert (await ask("GET", f"{SETS}/web"))["spec"]["replicas"] == 0


async def test_scale_of_an_object_without_replicas_is_one(ask, replica_set):
    del replica_set["spec"]["replicas"]
    await ask("POST", SETS, replica_set)
    assert (await ask("GET", f"{SETS}/web/scale"))["spec"] == {"replicas": 1}
    await ask.patch(f"{SETS}/web/scale", {"spec": {"replicas": 1}})
    whole = await ask("GET", f"{SETS}/web")
    assert whole["spec"]["replicas"] == 1
    await ask.patch(f"{SETS}/web/scale", {"spec": {"replicas": 0}})
    assert (await ask("GET", f"{SETS}/web/scale"))["spec"] == {}


async def test_scale_with_a_resource_version_is_conditional(ask, replica_set):
    await ask("POST", SETS, replica_set)
    old = (await ask("GET", f"{SETS}/web/scale")).document
    body = {"metadata": {"name": "web"}, "spec": {"replicas": 4}}
    assert (await ask("PUT", f"{SETS}/web/scale", body)).status == 200
    stale = await ask("PUT", f"{SETS}/web/scale", {**old, "spec": {"replicas": 9}})
    assert (stale.status, stale["reason"]) == (409, "Conflict")


@pytest.mark.parametrize(
    ("count", "code", "reason"), [(-1, 422, "Invalid"), (2**31, 400, "BadRequest")]
)
async def test_replicas_out_of_range_are_rejected(ask, replica_set, count, code, reason):
    await ask("POST", SETS, replica_set)
    refused = await ask.patch(f"{SETS}/web/scale", {"spec": {"replicas": count}})
    assert (refused.status, refused["reason"]) == (code, reason)


async def test_a_pod_is_bound_once(ask, pod):
    del pod["spec"]["nodeName"]
    await ask("POST", PODS, pod)
    bound = await ask("POST", f"{PODS}/pod/binding", BIND)
    assert (bound.status, bound["status"]) == (201, "Success")
    found = await ask("GET", f"{PODS}/pod")
    assert found["spec"]["nodeName"] == "one"
    condition = found["status"]["conditions"][-1]
    assert (condition["type"], condition["status"]) == ("PodScheduled", "True")
    again = await ask("POST", f"{PODS}/pod/binding", {"target": {"name": "two"}})
    assert again.status == 409
    assert 'already assigned to node "one"' in again["message"]


async def test_an_invalid_binding_is_rejected(ask, pod):
    del pod["spec"]["nodeName"]
    pod["metadata"]["finalizers"] = ["example.com/a"]
    await ask("POST", PODS, pod)
    assert (await ask("POST", f"{PODS}/pod/binding", {"target": {}})).status == 422
    assert (await ask("POST", f"{PODS}/none/binding", BIND)).status == 404
    other = {**BIND, "metadata": {"uid": "other"}}
    assert (await ask("POST", f"{PODS}/pod/binding", other)).status == 409
    await ask("DELETE", f"{PODS}/pod")
    refused = await ask("POST", f"{PODS}/pod/binding", BIND)
    assert "is being deleted" in refused["message"]


async def test_logs_of_an_unscheduled_pod_are_rejected(ask, pod):
    del pod["spec"]["nodeName"]
    await ask("POST", PODS, pod)
    refused = await ask("GET", f"{PODS}/pod/log")
    assert refused.status == 400
    assert 'container "compute" in pod "pod" is waiting to start' in refused["message"]
    unknown = await ask("GET", f"{PODS}/pod/log?container=x")
    assert unknown["message"] == "container x is not valid for pod pod"
    assert (await ask("GET", f"{PODS}/none/log")).status == 404


async def test_logs_of_an_unreachable_node_are_unavailable(ask, pod):
    await ask("POST", PODS, pod)
    refused = await ask("GET", f"{PODS}/pod/log")
    assert refused.status == 503
    assert 'node "one"' in refused["message"]


async def test_the_console_of_a_stopped_vmi_has_kubevirts_error(ask, machine):
    missing = await ask("GET", CONSOLE.format("nosuch"), headers=UPGRADE)
    assert missing.status == 404
    assert missing["message"] == 'virtualmachineinstance.kubevirt.io "nosuch" not found'
    await ask("POST", MACHINES, machine)
    waiting = await ask("GET", CONSOLE.format("vm"), headers=UPGRADE)
    assert (waiting.status, waiting["message"]) == (400, "VMI is not running")
    component = ask.as_user("system:serviceaccount:kubevirt:kubevirt-controller")
    changed = await component.patch(f"{MACHINES}/vm", {"status": {"phase": "Failed"}})
    assert changed.status == 200, changed.text
    failed = await ask("GET", CONSOLE.format("vm"), headers=UPGRADE)
    assert failed.status == 409
    assert "VMI is in failed status" in failed["message"]
    plain = await ask("GET", CONSOLE.format("vm"))
    assert plain.status == 400
    silent = {**machine, "metadata": {"name": "silent"}}
    silent["spec"]["domain"]["devices"]["autoattachSerialConsole"] = False
    await ask("POST", MACHINES, silent)
    none = await ask("GET", CONSOLE.format("silent"), headers=UPGRADE)
    assert none["message"] == "No serial consoles are present."


async def test_a_dry_run_of_a_subresource_stores_nothing(ask, replica_set, pod):
    del pod["spec"]["nodeName"]
    await ask("POST", PODS, pod)
    await ask("POST", SETS, replica_set)
    before = ask.server.store.revision
    scaled = await ask.patch(f"{SETS}/web/scale?dryRun=All", {"spec": {"replicas": 5}})
    assert scaled["spec"] == {"replicas": 5}
    assert (await ask("POST", f"{PODS}/pod/binding?dryRun=All", BIND)).status == 201
    empty = {"metadata": {"name": "default"}, "spec": {"finalizers": []}}
    done = await ask("PUT", f"{SPACE}/finalize?dryRun=All", empty)
    assert "finalizers" not in done["spec"]
    assert ask.server.store.revision == before
    for method, path, body in (
        ("PUT", f"{SETS}/web/scale", {"spec": {"replicas": 5}}),
        ("POST", f"{PODS}/pod/binding", BIND),
        ("PUT", f"{SPACE}/finalize", empty),
    ):
        assert (await ask(method, f"{path}?dryRun=Some", body)).status == 422


@pytest.mark.parametrize(
    ("document", "code"),
    [
        ({"metadata": None}, 200),
        ({"metadata": 5}, 400),
        ({"spec": {"finalizers": 5}}, 400),
        ({"spec": 5}, 400),
        ({"metadata": {"name": "other"}}, 400),
        ({"kind": "Pod"}, 400),
    ],
)
async def test_an_invalid_finalize_request_is_rejected(ask, document, code):
    answer = await ask("PUT", f"{SPACE}/finalize", document)
    assert answer.status == code, answer.text


@pytest.mark.parametrize(
    ("sent", "code", "said"),
    [
        ({"spec": 5}, 400, 'Scale in version "v1" cannot be handled as a Scale'),
        ({"spec": [1]}, 400, 'Scale in version "v1" cannot be handled as a Scale'),
        ({"spec": {"replicas": "2"}}, 400, "spec.replicas"),
        ({"kind": "Pod"}, 400, "a Scale of autoscaling/v1 is expected: kind is Pod"),
        ({"metadata": {"name": "other"}}, 400, "does not match the name on the URL"),
        ({"metadata": {"namespace": "other"}}, 400, "does not match the namespace on the URL"),
        ({"metadata": {"uid": "other"}}, 409, "Precondition failed: UID in precondition: other"),
    ],
)
async def test_an_invalid_scale_is_rejected(ask, replica_set, sent, code, said):
    await ask("POST", SETS, replica_set)
    refused = await ask("PUT", f"{SETS}/web/scale", sent)
    assert (refused.status, refused["code"]) == (code, code)
    assert said in refused["message"]
    refused = await ask.patch(f"{SETS}/web/scale", sent)
    assert refused.status == code
    assert (await ask("GET", f"{SETS}/web/scale"))["spec"] == {"replicas": 3}
