"""Which outdated VMIs are renewed now, and how."""

import msgspec
import pytest
from tests.unit.controllers.make import make_vmi

from corral.api.kinds.kubevirt.migration import VirtualMachineInstanceMigration
from corral.api.kinds.kubevirt.workload_update import WorkloadUpdateStrategy
from corral.controllers.workload_update.plan import Observed, is_obsolete, is_updatable, plan

MOVES = [{"type": "LiveMigratable", "status": "True"}]
STAYS = [{"type": "LiveMigratable", "status": "False"}]
BOTH = ("LiveMigrate", "Evict")


def vmi(name, conditions=MOVES, **fields):
    return make_vmi(name=name, conditions=conditions, **fields)


def migration(name, phase="Running", *, update=True, uid="m", going=False):
    annotations = {"kubevirt.io/workloadUpdateMigration": ""} if update else {}
    metadata = {"name": "x", "namespace": "default", "uid": uid, "annotations": annotations}
    if going:
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    document = {"metadata": metadata, "spec": {"vmiName": name}, "status": {"phase": phase}}
    return msgspec.convert(document, VirtualMachineInstanceMigration)


def planned(vmis, migrations=(), *, methods=BOTH, size=10, parallel=5, evicted_at=-1e9, tried=()):
    observed = Observed(
        outdated=vmis,
        migrations=migrations,
        strategy=WorkloadUpdateStrategy(
            workload_update_methods=list(methods), batch_eviction_size=size
        ),
        parallel=parallel,
        evicted_at=evicted_at,
        tried_at=dict(tried),
        now=1000.0,
    )
    result = plan(observed)
    names = [[each.metadata.name for each in part] for part in (result.migrate, result.evict)]
    return (*names, result.requeue_seconds)


@pytest.mark.parametrize(
    ("methods", "migrated", "evicted"),
    [
        ((), [], []),
        (("LiveMigrate",), ["a"], []),
        (("Evict",), [], ["a", "b"]),
        (BOTH, ["a"], ["b"]),
    ],
)
def test_what_can_migrate_does_and_the_rest_is_evicted_if_both_are_allowed(
    methods, migrated, evicted
):
    found = planned([vmi("a"), vmi("b", STAYS)], methods=methods)
    assert found == (migrated, evicted, 60.0 if evicted else 0.0)


def test_migrations_are_bounded_and_the_oldest_vmi_is_first():
    vmis = [vmi(f"vm{age}", created=age) for age in (3, 1, 2)]
    assert planned(vmis, parallel=2)[0] == ["vm1", "vm2"]
    assert planned(vmis, [migration("other")], parallel=2)[0] == ["vm1"]
    assert planned(vmis, [migration("other", "Pending")], parallel=2)[0] == ["vm1"]
    assert planned(vmis, [migration("other", "Succeeded")], parallel=2)[0] == ["vm1", "vm2"]
    assert planned(vmis, parallel=0)[0] == []


def test_a_vmi_that_migrates_is_left_alone():
    assert planned([vmi("a")], [migration("a", "")])[:2] == ([], [])


def test_a_vmi_whose_migration_failed_comes_last_and_takes_no_place_while_it_waits():
    vmis = [vmi("bad", created=1), vmi("good", created=2)]
    failed = migration("bad", "Failed")
    assert planned(vmis, [failed], parallel=1)[0] == ["good"]
    assert planned(vmis[1:], [failed, migration("bad", "Pending")], parallel=1)[0] == ["good"]
    assert planned(vmis[1:], [failed, migration("bad", "Scheduling")], parallel=1)[0] == []


def test_evictions_come_in_batches():
    vmis = [vmi(f"vm{age}", STAYS, created=age) for age in range(4)]
    assert planned(vmis, size=3) == ([], ["vm0", "vm1", "vm2"], 60.0)
    assert planned(vmis, size=3, evicted_at=960.0) == ([], [], 20.0)
    assert planned(vmis, size=0) == ([], [], 0.0)


def test_a_vmi_whose_eviction_was_tried_comes_after_the_others():
    vmis = [vmi(f"vm{age}", STAYS, created=age) for age in range(3)]
    tried = {vmis[0].metadata.uid: 900.0, vmis[1].metadata.uid: 800.0}
    assert planned(vmis, size=2, tried=tried)[1] == ["vm2", "vm1"]


@pytest.mark.parametrize(
    ("fields", "updatable"),
    [({}, True), ({"going": True}, False), ({"phase": "Scheduled"}, False)],
)
def test_vmis_that_run_are_updatable(fields, updatable):
    assert is_updatable(vmi("a", **fields)) is updatable


def test_a_migration_for_an_update_that_is_not_due_any_more_is_obsolete():
    machine = vmi("a")
    assert is_obsolete(migration("a"), machine, outdated=False)
    assert not is_obsolete(migration("a"), machine, outdated=True)
    assert not is_obsolete(migration("a"), None, outdated=False)
    assert not is_obsolete(migration("a"), vmi("a", phase="Failed"), outdated=False)
    assert not is_obsolete(migration("a", update=False), machine, outdated=False)
    assert not is_obsolete(migration("a", "Succeeded"), machine, outdated=False)
    assert not is_obsolete(migration("a", going=True), machine, outdated=False)


@pytest.mark.parametrize(("uid", "obsolete"), [("m", False), ("earlier", True)])
def test_a_migration_whose_guest_has_moved_is_not_obsolete(uid, obsolete):
    machine = vmi("a")
    document = msgspec.to_builtins(machine)
    document["status"]["migrationState"] = {
        "migrationUid": uid,
        "targetNodeDomainReadyTimestamp": "2026-01-01T00:00:00Z",
    }
    moved = msgspec.convert(document, type(machine))
    assert is_obsolete(migration("a"), moved, outdated=False) is obsolete
