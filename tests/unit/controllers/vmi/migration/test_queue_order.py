"""Which migrations start first, and how many at once."""

import pytest
from tests.unit.controllers.vmi.migration.make import migration

from corral.api.kinds.vmi.migration_configuration import MigrationConfiguration
from corral.controllers.vmi.migration.queue_order import Candidate, startable

LIMITS = MigrationConfiguration(
    parallel_migrations_per_cluster=5, parallel_outbound_migrations_per_node=2
)


def candidate(name, node="one", priority=None, created="2026-01-01T00:00:00Z"):
    return Candidate(migration("Pending", name=name, created=created, priority=priority), node)


@pytest.mark.parametrize(
    ("running", "chosen"),
    [
        ([], {"a", "b"}),
        (["one"], {"a"}),
        (["one", "one"], set()),
        (["two"] * 5, set()),
        (["two"] * 4, {"a"}),
    ],
)
def test_limits_are_per_cluster_and_per_source_node(running, chosen):
    waiting = [candidate(name) for name in ("c", "b", "a")]
    assert {key.name for key in startable(waiting, running, LIMITS)} == chosen


def test_priority_comes_before_age_and_age_before_name():
    waiting = [
        candidate("a", priority="system-maintenance"),
        candidate("b"),
        candidate("c", created="2025-12-31T00:00:00Z"),
        candidate("d", priority="system-critical"),
    ]
    order = []
    while waiting:
        (key,) = startable(waiting, ["two"] * 4, LIMITS)
        order.append(key.name)
        waiting = [each for each in waiting if each.migration.key != key]
    assert order == ["d", "c", "b", "a"]


def test_a_full_node_keeps_no_other_back():
    waiting = [candidate("a", "one", "system-critical"), candidate("b", "three")]
    assert {key.name for key in startable(waiting, ["one", "one"], LIMITS)} == {"b"}
