"""Metrics of migrations from the cached objects, with KubeVirt's names and labels."""

import msgspec
import pytest

from corral.api.kinds.kubevirt.migration import VirtualMachineInstanceMigration
from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.controllers.metrics import migrations


def migration(name, phase):
    document = {
        "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}"},
        "spec": {"vmiName": "vm"},
        "status": {"phase": phase},
    }
    return msgspec.convert(document, VirtualMachineInstanceMigration)


def vmi(**state):
    document = {
        "metadata": {"name": "vm", "namespace": "default", "uid": "u"},
        "spec": {"domain": {"devices": {}}},
        "status": {"nodeName": "b", "migrationState": state or None},
    }
    return msgspec.convert(document, VirtualMachineInstance)


def values(families):
    return {
        family.name: [(sample.labels, sample.value) for sample in family.samples]
        for family in families
    }


def test_migrations_are_counted_by_kubevirts_groups_of_phases():
    phases = [
        *("", "Pending", "Scheduling", "Scheduled", "PreparingTarget", "TargetReady", "Running"),
        *("Succeeded", "Failed"),
    ]
    found = values(migrations.families(migration(str(n), phase) for n, phase in enumerate(phases)))
    counts = {"pending": 1, "scheduling": 1, "unset": 1, "running": 4}
    for word, count in counts.items():
        assert found[f"kubevirt_vmi_migrations_in_{word}_phase"] == [({}, count)]
    labels = {"vmi": "vm", "namespace": "default"}
    assert found["kubevirt_vmi_migration_succeeded"] == [({**labels, "vmim": "7"}, 1)]
    assert found["kubevirt_vmi_migration_failed"] == [({**labels, "vmim": "8"}, 1)]


def test_counts_are_zero_without_migrations():
    found = values(migrations.families([]))
    assert found["kubevirt_vmi_migrations_in_running_phase"] == [({}, 0)]
    assert found["kubevirt_vmi_migration_failed"] == []


STARTED = {"migrationUid": "uid-move", "startTimestamp": "2026-01-01T00:00:00Z"}
OVER = {**STARTED, "endTimestamp": "2026-01-01T00:00:02Z", "completed": True}


@pytest.mark.parametrize(("failed", "result"), [(False, "succeeded"), (True, "failed")])
def test_the_times_of_a_migration_name_it_and_its_result(failed, result):
    found = values(migrations.times([vmi(**OVER, failed=failed)], [migration("move", "Succeeded")]))
    labels = {"node": "b", "namespace": "default", "name": "vm", "migration_name": "move"}
    assert found == {
        "kubevirt_vmi_migration_start_time_seconds": [(labels, 1767225600)],
        "kubevirt_vmi_migration_end_time_seconds": [({**labels, "status": result}, 1767225602)],
    }


def test_a_migration_that_runs_has_no_end_and_one_that_is_gone_no_name():
    found = values(migrations.times([vmi(**STARTED), vmi()], []))
    [(labels, _)] = found["kubevirt_vmi_migration_start_time_seconds"]
    assert labels["migration_name"] == ""
    assert found["kubevirt_vmi_migration_end_time_seconds"] == []
