"""Migrations that their VMI rules out."""

import asyncio

import pytest
from tests.unit.server.conftest import MACHINES
from tests.unit.server.subresources.evictions import store_machine

MIGRATIONS = "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstancemigrations"
DENIED = 'admission webhook "migration-create-validator.kubevirt.io" denied the request: '
FIXED = {
    "type": "LiveMigratable",
    "status": "False",
    "reason": "DisksNotLiveMigratable",
    "message": "no",
}


async def migrate(ask, name="move", vmi="vm", path=MIGRATIONS):
    return await ask("POST", path, {"metadata": {"name": name}, "spec": {"vmiName": vmi}})


@pytest.mark.parametrize(
    ("vmi", "status", "why"),
    [
        ("other", {}, 'the VMI "default/other" does not exist'),
        ("vm", {"phase": "Succeeded"}, "Cannot migrate VMI in finalized state."),
        (
            "vm",
            {"conditions": [FIXED]},
            "Cannot migrate VMI, Reason: DisksNotLiveMigratable, Message: no",
        ),
    ],
)
async def test_a_vmi_that_cannot_migrate_is_refused(ask, machine, vmi, status, why):
    await store_machine(ask, machine, **status)
    answer = await migrate(ask, vmi=vmi)
    assert (answer.status, answer["message"]) == (400, DENIED + why)


@pytest.mark.parametrize("path", [MIGRATIONS, MIGRATIONS.replace("/v1/", "/v1alpha3/")])
async def test_a_migration_is_stored_with_label_and_finalizer(ask, machine, path):
    await store_machine(ask, machine)
    answer = await migrate(ask, path=path)
    assert answer.status == 201, answer.text
    assert answer.metadata["labels"] == {"kubevirt.io/vmi-name": "vm"}
    assert answer.metadata["finalizers"] == ["kubevirt.io/migrationJobFinalize"]


async def test_a_vmi_has_one_migration_at_a_time(ask, machine):
    await store_machine(ask, machine)
    first, second = await asyncio.gather(migrate(ask, "one"), migrate(ask, "two"))
    assert (first.status, second.status) == (201, 400)
    uid = first.metadata["uid"]
    assert second["message"] == (
        f"{DENIED}in-flight migration detected. Active migration job ({uid}) is currently already "
        "in progress for VMI vm."
    )
    patch = {"status": {"phase": "Failed"}}
    assert (await ask.patch(f"{MIGRATIONS}/one/status", patch)).status == 200
    assert (await migrate(ask, "two")).status == 201


async def test_the_vmi_of_a_stored_migration_is_not_checked_again(ask, machine):
    await store_machine(ask, machine)
    await migrate(ask)
    await store_machine(ask, machine, phase="Failed")
    patch = {"metadata": {"annotations": {"a": "b"}}}
    assert (await ask.patch(f"{MIGRATIONS}/move", patch)).status == 200
    assert (await ask("GET", f"{MACHINES}/vm"))["status"]["phase"] == "Failed"
