"""The status of a migration."""

from tests.unit.controllers.vmi.migration.make import NOW, migration

from corral.api.kinds.vmi.status import MigrationState
from corral.controllers.vmi.migration.status import status


def test_each_phase_that_passes_is_recorded():
    changed = status(
        migration("Pending"),
        ("Scheduling", "Scheduled"),
        MigrationState(source_node="one"),
        NOW,
        cancelled=False,
        no_quota=False,
    )
    assert changed["phase"] == "Scheduled"
    assert [each["phase"] for each in changed["phaseTransitionTimestamps"]] == [
        "Scheduling",
        "Scheduled",
    ]
    assert changed["migrationState"] == {"sourceNode": "one"}
    assert "conditions" not in changed


def test_conditions_come_and_go():
    pending = migration("Pending")
    changed = status(pending, (), None, NOW, cancelled=True, no_quota=True)
    types = [each["type"] for each in changed["conditions"]]
    assert types == ["migrationAbortRequested", "migrationRejectedByResourceQuota"]
    assert status(pending, (), None, NOW, cancelled=False, no_quota=False) == {}
