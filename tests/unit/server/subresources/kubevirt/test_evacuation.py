"""Evictions of machines' pods by the machines' strategies, and marks that are taken back."""

import pytest
from tests.unit.server.conftest import MACHINES, MERGE, PODS
from tests.unit.server.subresources.evictions import (
    evict,
    is_being_deleted,
    store_machine,
    store_pod,
)

from corral.api.kinds.kubevirt.installation import KEY, KUBEVIRT_KIND

CANCEL = "/apis/subresources.kubevirt.io/v1/namespaces/default/{}/vm/evacuate/cancel"
DENIED = 'admission webhook "virt-launcher-eviction-interceptor.kubevirt.io" denied the request: '
MIGRATABLE = {"conditions": [{"type": "LiveMigratable", "status": "True"}]}
TRIGGERED = 'Eviction triggered evacuation of VMI "default/vm"'


@pytest.mark.parametrize(
    ("strategy", "status", "why", "marked"),
    [
        (None, MIGRATABLE, "", False),
        ("None", MIGRATABLE, "", False),
        ("LiveMigrateIfPossible", {}, "", False),
        ("LiveMigrateIfPossible", MIGRATABLE, TRIGGERED, True),
        (
            "LiveMigrate",
            {},
            "VMI vm is configured with an eviction strategy but is not live-migratable",
            False,
        ),
        ("LiveMigrate", MIGRATABLE, TRIGGERED, True),
        ("External", {}, TRIGGERED, True),
        ("External", {"nodeName": "two"}, "Eviction request for target Pod", False),
    ],
)
async def test_a_vmi_is_evicted_by_its_eviction_strategy(
    ask, machine, strategy, status, why, marked
):
    await store_pod(ask, machine="vm")
    await store_machine(ask, machine, strategy, **status)
    tried = await evict(ask, query="?dryRun=All")
    answer = await evict(ask)
    assert tried.status == answer.status == (429 if why else 201)
    if why:
        assert answer["message"] == DENIED + why
    assert await is_being_deleted(ask) is not bool(why)
    machine = (await ask("GET", f"{MACHINES}/vm"))["status"]
    assert machine.get("evacuationNodeName") == ("one" if marked else None)
    if marked:
        again = await evict(ask)
        assert (again.status, again["message"]) == (
            429,
            f"{DENIED}Evacuation in progress: {TRIGGERED}",
        )


@pytest.mark.parametrize(
    ("own", "default", "status"),
    [
        (None, "LiveMigrate", 429),
        (None, "LiveMigrateIfPossible", 429),
        (None, "None", 201),
        ("None", "LiveMigrate", 201),
        ("LiveMigrate", "None", 429),
    ],
)
async def test_a_vmi_without_an_eviction_strategy_has_the_clusters(
    ask, machine, own, default, status
):
    await store_pod(ask, machine="vm")
    await store_machine(ask, machine, own, **MIGRATABLE)
    document = {
        "metadata": {"name": KEY.name, "namespace": KEY.namespace},
        "spec": {"configuration": {"evictionStrategy": default}},
    }
    await ask.server.store.write(KUBEVIRT_KIND.resource, KEY, document)
    assert (await evict(ask)).status == status


@pytest.mark.parametrize(
    ("asked_by", "source"),
    [("sigs.k8s.io/descheduler", "descheduler"), ("somebody", None)],
)
async def test_an_eviction_by_the_descheduler_is_noted(ask, machine, asked_by, source):
    await store_pod(ask, machine="vm")
    await store_machine(ask, machine, "LiveMigrate", **MIGRATABLE)
    eviction = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": "web", "annotations": {"requested-by": asked_by}},
    }
    assert (await ask("POST", f"{PODS}/web/eviction", eviction)).status == 429
    annotations = (await ask("GET", f"{MACHINES}/vm")).metadata.get("annotations") or {}
    assert annotations.get("kubevirt.io/eviction-source") == source
    cancelled = await ask("PUT", CANCEL.format("virtualmachineinstances"), {})
    assert cancelled.status == 200
    annotations = (await ask("GET", f"{MACHINES}/vm")).metadata.get("annotations") or {}
    assert "kubevirt.io/eviction-source" not in annotations


@pytest.mark.parametrize("before", [{"uid": "another"}, {"resourceVersion": "1"}])
async def test_failed_preconditions_mark_no_vmi(ask, machine, before):
    await store_pod(ask, machine="vm")
    await store_machine(ask, machine, "External")
    assert (await evict(ask, deleteOptions={"preconditions": before})).status == 409
    assert "evacuationNodeName" not in (await ask("GET", f"{MACHINES}/vm"))["status"]


async def test_a_pod_of_a_deleted_vmi_is_not_evicted(ask):
    await store_pod(ask, machine="vm")
    refused = await evict(ask)
    missing = 'virtualmachineinstances.kubevirt.io "vm" not found'
    assert refused["message"] == f"{DENIED}kubevirt failed getting the vmi: {missing}"


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
async def test_the_pod_of_a_finished_vmi_is_evicted(ask, machine, phase):
    await store_pod(ask, machine="vm", phase=phase)
    await store_machine(ask, machine, "External")
    assert (await evict(ask)).status == 201


async def test_an_evacuation_can_be_cancelled(ask, machine):
    await store_pod(ask, machine="vm")
    await store_machine(ask, machine, "External", evacuationNodeName="one")
    path = CANCEL.format("virtualmachineinstances")
    tried = await ask("PUT", path, {"dryRun": ["All"]})
    assert tried.status == 200
    refused = await ask("PUT", path, {"evacuationNodeName": "two"})
    assert (refused.status, refused["message"]) == (
        409,
        (
            'Operation cannot be fulfilled on virtualmachineinstance.kubevirt.io "vm": VMI is to '
            'leave node "one", not "two"'
        ),
    )
    assert (await ask("GET", f"{MACHINES}/vm"))["status"]["evacuationNodeName"] == "one"
    assert (await ask("PUT", path, {"evacuationNodeName": "one"})).status == 200
    assert "evacuationNodeName" not in (await ask("GET", f"{MACHINES}/vm"))["status"]
    assert (await ask("PUT", path)).status == 200
    assert (await ask("GET", path)).status == 405


async def test_a_vm_without_a_vmi_has_no_evacuation_to_cancel(ask):
    for plural, name in (
        ("virtualmachineinstances", "virtualmachineinstance"),
        ("virtualmachines", "virtualmachine"),
    ):
        missing = await ask("PUT", CANCEL.format(plural))
        assert (missing.status, missing["message"]) == (
            404,
            f'{name}.kubevirt.io "vm" not found',
        )


async def test_clients_cannot_write_the_evacuation_node(ask, machine):
    await store_machine(ask, machine, "External")
    change = {"status": {"evacuationNodeName": "one"}}
    await ask("PATCH", f"{MACHINES}/vm", change, MERGE)
    assert "evacuationNodeName" not in (await ask("GET", f"{MACHINES}/vm"))["status"]
