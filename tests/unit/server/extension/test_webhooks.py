import asyncio
import base64
import copy
import json
from datetime import UTC, datetime

import pytest
from tests.unit.server.subresources.evictions import store_machine

from corral.api.errors import BadRequest
from corral.api.patch.json import json_patch
from corral.server.extension.webhooks import MUTATE_PATH, VALIDATE_PATH, Webhooks

OWN = "system:serviceaccount:corral-system:corral-controllers"
MIGRATIONS = "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstancemigrations"
VMS = "/apis/kubevirt.io/v1/namespaces/default/virtualmachines"
TYPES = "/apis/instancetype.kubevirt.io/v1beta1/virtualmachineclusterinstancetypes"


def clock():
    return datetime(2026, 1, 2, tzinfo=UTC)


@pytest.fixture
def webhooks(client):
    return Webhooks(client, OWN, clock)


def request(document, old=None, *, user="jane", **changed):
    """An AdmissionReview as kube-apiserver sends it."""
    group, _, version = document["apiVersion"].rpartition("/")
    review_request = {
        "uid": "1",
        "kind": {"group": group, "version": version, "kind": document["kind"]},
        "operation": "CREATE" if old is None else "UPDATE",
        "name": document["metadata"].get("name", ""),
        "namespace": "default",
        "userInfo": {"username": user, "groups": ["system:authenticated"]},
        "object": document,
        "oldObject": old,
        "dryRun": False,
        "options": None,
    }
    review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}
    return json.dumps(review | {"request": review_request | changed}).encode()


async def mutated(webhooks, document, old=None, **changed):
    """The object after the patch."""
    response = json.loads(await webhooks.review(MUTATE_PATH, request(document, old, **changed)))[
        "response"
    ]
    assert response["allowed"], response
    patch = json.loads(base64.b64decode(response.get("patch", "W10=")))
    return json_patch(copy.deepcopy(document), patch)


async def validated(webhooks, document, old=None, **changed):
    body = await webhooks.review(VALIDATE_PATH, request(document, old, **changed))
    return json.loads(body)["response"]


async def refusal(webhooks, path, document, old=None, **changed):
    response = json.loads(await webhooks.review(path, request(document, old, **changed)))[
        "response"
    ]
    assert not response["allowed"]
    return response["status"]


async def test_a_new_vmi_gets_the_defaults_of_the_embedded_server(ask, webhooks, machine):
    path = "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstances"
    embedded = (await ask("POST", path, copy.deepcopy(machine))).document
    sent = copy.deepcopy(machine) | {"apiVersion": "kubevirt.io/v1"}
    sent["metadata"]["creationTimestamp"] = None  # as kube-apiserver sends it
    document = await mutated(webhooks, sent)
    for each in (document, embedded):
        each["spec"]["domain"]["firmware"].pop("uuid")
        each["status"].pop("phaseTransitionTimestamps")
    assert document["spec"] == embedded["spec"]
    assert document["status"] == embedded["status"]
    assert document["metadata"].get("creationTimestamp") is None
    assert document["metadata"].get("annotations") == embedded["metadata"].get("annotations")


async def test_times_of_a_new_vmi_are_the_clocks(webhooks, machine):
    document = await mutated(webhooks, machine | {"apiVersion": "kubevirt.io/v1"})
    (first,) = document["status"]["phaseTransitionTimestamps"]
    assert first["phaseTransitionTimestamp"] == "2026-01-02T00:00:00Z"


async def test_mutation_is_done_once(webhooks, machine):
    once = await mutated(webhooks, machine | {"apiVersion": "kubevirt.io/v1"})
    assert await mutated(webhooks, once) == once


async def test_users_do_not_change_the_status_of_a_vmi(webhooks, machine):
    old = await mutated(webhooks, machine | {"apiVersion": "kubevirt.io/v1"})
    new = copy.deepcopy(old)
    new["status"]["phase"] = "Running"
    assert (await mutated(webhooks, new, old))["status"]["phase"] == "Pending"


async def test_our_controllers_change_it(webhooks, machine):
    old = await mutated(webhooks, machine | {"apiVersion": "kubevirt.io/v1"})
    new = copy.deepcopy(old)
    new["status"]["phase"] = "Running"
    assert (await mutated(webhooks, new, old, user=OWN))["status"]["phase"] == "Running"


async def test_a_service_account_of_a_namespace_kubevirt_is_no_component(webhooks, machine):
    false = "system:serviceaccount:kubevirt:mallory"
    old = await mutated(webhooks, machine | {"apiVersion": "kubevirt.io/v1"})
    new = copy.deepcopy(old)
    new["status"]["phase"] = "Running"
    assert (await mutated(webhooks, new, old, user=false))["status"]["phase"] == "Pending"
    new["metadata"]["labels"] = {"kubevirt.io/nodeName": "n"}
    status = await refusal(webhooks, VALIDATE_PATH, new, user=false)
    assert "reserved kubevirt.io/ labels" in status["message"]


async def test_a_bad_replica_set_is_refused_in_kubevirts_words(webhooks, replica_set):
    replica_set["spec"]["selector"] = {"matchLabels": {"app": "other"}}
    replica_set["spec"]["template"]["spec"]["domain"]["devices"]["disks"] = [
        {"name": "d", "disk": {"bus": "virtio"}}
    ]
    status = await refusal(webhooks, VALIDATE_PATH, replica_set)
    assert status["code"] == 422
    fields = [cause["field"] for cause in status["details"]["causes"]]
    assert "spec.selector" in fields
    assert any(each.startswith("spec.template.spec.domain.devices.disks[0]") for each in fields)
    assert status["message"].startswith(status["details"]["causes"][0]["message"])


async def test_warnings_are_passed_on(webhooks, replica_set):
    replica_set["spec"]["template"]["spec"]["domain"]["memory"] = {"guest": "8Mi"}
    replica_set["spec"]["template"]["spec"]["domain"].pop("resources", None)
    response = await validated(webhooks, replica_set)
    assert response["allowed"], response
    assert response["warnings"]


async def test_values_that_the_definition_does_not_check_are_refused(webhooks, replica_set):
    domain = replica_set["spec"]["template"]["spec"]["domain"]
    domain["memory"] = {"guest": "much"}
    status = await refusal(webhooks, VALIDATE_PATH, replica_set)
    assert "spec.template.spec.domain.memory.guest" in status["message"]
    assert await mutated(webhooks, replica_set) == replica_set


@pytest.mark.parametrize("spec", ["all", None, {"template": 3}, {"running": "yes"}])
async def test_objects_that_do_not_fit_the_schema_are_not_mutated(webhooks, spec):
    document = {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachine",
        "metadata": {"name": "a"},
        "spec": spec,
    }
    assert await mutated(webhooks, document) == document
    assert (await refusal(webhooks, VALIDATE_PATH, document))["reason"] == "Invalid"


@pytest.fixture
def vm(machine):
    machine_spec = machine["spec"]
    machine_spec["domain"].pop("resources", None)
    machine_spec["domain"].pop("memory", None)
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachine",
        "metadata": {"name": "db"},
        "spec": {
            "runStrategy": "Halted",
            "instancetype": {"name": "small"},
            "template": {"metadata": {}, "spec": machine_spec},
        },
    }


async def test_references_are_completed_by_objects_of_the_api_server(ask, webhooks, vm):
    small = {"cpu": {"guest": 1}, "memory": {"guest": "128Mi"}}
    made = await ask("POST", TYPES, {"metadata": {"name": "small"}, "spec": small})
    assert made.status == 201, made.text
    document = await mutated(webhooks, vm)
    assert document["spec"]["instancetype"]["kind"] == "VirtualMachineClusterInstancetype"
    vm["spec"]["template"]["spec"]["domain"]["cpu"] = {"cores": 2}
    status = await refusal(webhooks, MUTATE_PATH, vm)
    assert "spec.template.spec.domain.cpu.cores conflicts" in status["message"]


async def test_clones_of_other_namespaces_need_the_right_to_their_source(ask, policy, webhooks):
    await ask("POST", "/api/v1/namespaces", {"metadata": {"name": "golden"}})
    volume = {
        "apiVersion": "cdi.kubevirt.io/v1beta1",
        "kind": "DataVolume",
        "metadata": {"name": "copy"},
        "spec": {
            "source": {"pvc": {"namespace": "golden", "name": "image"}},
            "storage": {"resources": {"requests": {"storage": "1Gi"}}},
        },
    }
    status = await refusal(webhooks, VALIDATE_PATH, volume)
    assert "jane has insufficient permissions in clone source namespace golden" in status["message"]
    admin = {"username": "admin", "groups": ["system:masters"]}
    assert (await validated(webhooks, volume, userInfo=admin))["allowed"]
    assert (await validated(webhooks, volume, user=OWN))["allowed"]


async def test_a_vmi_has_one_migration_at_a_time(ask, webhooks, machine):
    await store_machine(ask, machine)
    second = {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstanceMigration",
        "metadata": {"name": "two", "namespace": "default"},
        "spec": {"vmiName": "vm"},
    }
    assert (await validated(webhooks, second))["allowed"]
    first = await ask("POST", MIGRATIONS, second | {"metadata": {"name": "one"}})
    status = await refusal(webhooks, VALIDATE_PATH, second)
    assert f"Active migration job ({first.metadata['uid']})" in status["message"]
    patch = {"status": {"phase": "Failed"}}
    assert (await ask.patch(f"{MIGRATIONS}/one/status", patch)).status == 200
    assert (await validated(webhooks, second))["allowed"]


@pytest.mark.parametrize(
    "changed",
    [{"operation": "DELETE"}, {"kind": {"group": "apps", "version": "v1", "kind": "Pod"}}],
)
async def test_reviews_without_a_rule_are_bad_requests(webhooks, machine, changed):
    with pytest.raises(BadRequest, match="this webhook has no rule for"):
        await webhooks.review(
            MUTATE_PATH, request(machine | {"apiVersion": "kubevirt.io/v1"}, **changed)
        )


async def test_reviews_beyond_a_limit_wait_for_their_turn(client, monkeypatch):
    monkeypatch.setattr("corral.server.extension.webhooks.MAX_REVIEWS", 2)
    webhooks = Webhooks(client, "", clock)
    go, reading = asyncio.Event(), []
    answered = []

    async def ask(number):
        async def receive():
            reading.append(number)
            await go.wait()
            return {"type": "http.request", "body": b"{}", "more_body": False}

        async def send(message):
            answered.append(message.get("status"))

        scope = {"type": "http", "method": "POST", "path": VALIDATE_PATH, "headers": [],
                 "query_string": b""}  # fmt: skip
        await webhooks(scope, receive, send)

    async with asyncio.TaskGroup() as group:
        for number in range(5):
            group.create_task(ask(number))
        await asyncio.sleep(0.01)
        assert reading == [0, 1]
        go.set()
    assert sorted(reading) == [0, 1, 2, 3, 4]
    assert answered.count(400) == 5  # they are no reviews


@pytest.mark.looptime
async def test_a_review_that_gets_no_turn_is_put_off(client, monkeypatch):
    monkeypatch.setattr("corral.server.extension.webhooks.MAX_REVIEWS", 0)
    webhooks = Webhooks(client, "", clock)
    sent = []

    async def send(message):
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": VALIDATE_PATH, "headers": [],
             "query_string": b""}  # fmt: skip
    await webhooks(scope, None, send)
    assert sent[0]["status"] == 429
