"""Back-off after failed migrations, and which of the finished ones stay."""

import msgspec
import pytest
from tests.unit.controllers.make import pod
from tests.unit.controllers.vmi.migration.make import NOW, migration, vmi

from corral.api.kinds.kubevirt.migration import EVACUATION
from corral.api.kinds.vmi.status import MigrationState
from corral.controllers.vmi.migration.history import (
    backoff_seconds,
    expired,
    left_behind,
    old_pod,
)

AUTOMATIC = {EVACUATION: "one"}
THIS = migration("Pending", name="now", created="2026-01-01T00:09:50Z", annotations=AUTOMATIC)


def earlier(number, phase="Failed", failed_at="2026-01-01T00:09:50Z", annotations=AUTOMATIC):
    return migration(
        phase,
        name=f"m{number}",
        uid=f"uid-{number}",
        created=f"2026-01-01T00:0{number}:00Z",
        failed_at=failed_at if phase == "Failed" else "",
        annotations=annotations,
    )


@pytest.mark.parametrize(
    ("others", "seconds"),
    [
        ([], 0),
        ([earlier(1)], 10),
        ([earlier(1), earlier(2)], 30),
        ([earlier(1), earlier(2), earlier(3)], 70),
        ([earlier(1), earlier(2, "Succeeded")], 0),
        ([earlier(1, "Succeeded"), earlier(2)], 10),
        ([earlier(1, failed_at="2026-01-01T00:09:00Z")], 0),
        ([earlier(1, annotations={})], 0),
    ],
)
def test_each_failure_in_a_row_doubles_the_back_off(others, seconds):
    assert backoff_seconds(THIS, others, NOW) == seconds


@pytest.mark.parametrize("name", ["a", "z"])
def test_a_failure_within_the_second_of_the_next_migration_counts(name):
    second = "2026-01-01T00:09:50Z"
    failed = migration(
        "Failed",
        name=name,
        uid="failed",
        created=second,
        failed_at=second,
        annotations=AUTOMATIC,
    )
    assert backoff_seconds(THIS, [failed], NOW) == 10


def test_migrations_of_users_have_no_back_off():
    assert backoff_seconds(migration("Pending"), [earlier(1), earlier(2)], NOW) == 0


def test_the_newest_five_are_kept():
    finished = [earlier(number, "Succeeded") for number in (6, 1, 2, 3, 4, 5, 7)]
    names = [each.metadata.name for each in expired([*finished, earlier(0, "Running")])]
    assert names == ["m1", "m2"]
    assert expired(finished[:5]) == []


@pytest.mark.parametrize(
    ("fields", "name"),
    [({}, ""), ({"completed": True}, "old"), ({"completed": True, "failed": True}, "new")],
)
def test_the_pod_that_the_guest_is_not_in_goes_with_the_migration(fields, name):
    finished = migration("Succeeded")
    state = {"sourcePod": "old", "targetPod": "new", **fields}
    finished.status.migration_state = msgspec.convert(state, MigrationState)
    assert old_pod(finished) == name
    assert old_pod(migration("Failed")) == ""


def test_the_newest_five_ended_pods_are_kept_besides_those_of_the_vmi_and_its_migrations():
    of = vmi()
    pods = [
        pod(of, name=f"p{number}", phase="Succeeded", created=f"2026-01-01T00:0{number}:00Z")
        for number in (9, 1, 2, 3, 4, 5, 6, 7, 8)
    ]
    pods.append(pod(of, name="runs", phase="Running", created="2026-01-01T00:00:00Z"))
    present = migration("Succeeded")
    state = {"sourcePod": "p1", "targetPod": "runs", "completed": True}
    present.status.migration_state = msgspec.convert(state, MigrationState)
    names = [each.metadata.name for each in left_behind(pods, "p2", [present])]
    assert names == ["p3", "p4"]
