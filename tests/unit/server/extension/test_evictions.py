"""Evictions of machines' pods on a Kubernetes: the webhook marks VMIs, and refuses."""

import json

import pytest
from tests.unit.server.conftest import MACHINES, SETS
from tests.unit.server.subresources.evictions import store_machine, store_pod

from corral.api.errors import BadRequest
from corral.api.kinds.vmi.replacement import REPLACE_AFTER_READY, REPLACEMENT_REQUESTED
from corral.client.client import Client
from corral.client.transport import InProcess
from corral.server.extension.webhooks import CONTROLLERS, EVICT_PATH, Webhooks

TRIGGERED = 'Eviction triggered evacuation of VMI "default/vm"'
MIGRATABLE = {"conditions": [{"type": "LiveMigratable", "status": "True"}]}


@pytest.fixture
def webhooks(ask):
    client = Client(InProcess(ask.server.handle, CONTROLLERS))
    return Webhooks(client, "", lambda: pytest.fail("an eviction needs no time"))


async def reviewed(webhooks, *, dry_run=False, options=None, annotations=None, **changed):
    """The response to the review of an eviction of the pod ``web``."""
    eviction = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": "web", "namespace": "default", "annotations": annotations or {}},
        "deleteOptions": options,
    }
    request = {
        "uid": "1",
        "kind": {"group": "policy", "version": "v1", "kind": "Eviction"},
        "subResource": "eviction",
        "operation": "CREATE",
        "name": "web",
        "namespace": "default",
        "userInfo": {"username": "jane"},
        "object": eviction,
        "dryRun": dry_run,
    }
    review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}
    body = json.dumps(review | {"request": request | changed}).encode()
    return json.loads(await webhooks.review(EVICT_PATH, body))["response"]


async def machine_of(ask):
    return (await ask("GET", f"{MACHINES}/vm")).document


async def test_a_vmi_that_is_to_migrate_is_marked_and_the_eviction_refused(ask, webhooks, machine):
    await store_pod(ask, machine="vm")
    await store_machine(ask, machine, "LiveMigrate", **MIGRATABLE)
    response = await reviewed(webhooks)
    assert not response["allowed"]
    assert (response["status"]["code"], response["status"]["message"]) == (429, TRIGGERED)
    assert (await machine_of(ask))["status"]["evacuationNodeName"] == "one"
    again = await reviewed(webhooks)
    assert again["status"]["message"] == f"Evacuation in progress: {TRIGGERED}"


@pytest.mark.parametrize("dry", [{"dry_run": True}, {"options": {"dryRun": ["All"]}}])
async def test_a_dry_run_marks_nothing(ask, webhooks, machine, dry):
    await store_pod(ask, machine="vm")
    await store_machine(ask, machine, "LiveMigrate", **MIGRATABLE)
    response = await reviewed(webhooks, **dry)
    assert response["status"]["message"] == TRIGGERED
    assert "evacuationNodeName" not in (await machine_of(ask))["status"]


@pytest.mark.parametrize("strategy", [None, "None", "LiveMigrateIfPossible"])
async def test_others_are_evicted(ask, webhooks, machine, strategy):
    await store_pod(ask, machine="vm")
    await store_machine(ask, machine, strategy)
    assert (await reviewed(webhooks))["allowed"]


async def test_pods_that_are_gone_or_of_no_machine_are_evicted(ask, webhooks):
    assert (await reviewed(webhooks))["allowed"]
    await store_pod(ask)
    assert (await reviewed(webhooks))["allowed"]


async def test_a_set_that_replaces_first_hears_of_every_eviction(
    ask, webhooks, machine, replica_set
):
    replica_set["metadata"]["annotations"] = {REPLACE_AFTER_READY: "true"}
    created = (await ask("POST", SETS, replica_set)).document
    await store_pod(ask, machine="vm")
    owner = {"apiVersion": "kubevirt.io/v1", "kind": created["kind"], "controller": True}
    owner |= {name: created["metadata"][name] for name in ("name", "uid")}
    machine["metadata"]["ownerReferences"] = [owner]
    await store_machine(ask, machine)
    assert (await reviewed(webhooks))["allowed"]
    annotations = (await machine_of(ask))["metadata"]["annotations"]
    assert annotations[REPLACEMENT_REQUESTED] == "one"


async def test_a_review_of_anything_else_is_refused(webhooks):
    with pytest.raises(BadRequest, match="for evictions of pods, not for Pod in /v1"):
        await reviewed(webhooks, kind={"group": "", "version": "v1", "kind": "Pod"})
