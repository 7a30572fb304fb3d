"""The migrations that may start: limits of a cluster and of its nodes, by priority.  Pure."""

from collections import Counter
from collections.abc import Collection, Iterable
from typing import NamedTuple

from corral.api.kinds.kubevirt.migration import VirtualMachineInstanceMigration
from corral.api.kinds.vmi.migration_configuration import MigrationConfiguration
from corral.api.object import Key


class Candidate(NamedTuple):
    """A migration that waits for its start: ``node`` is the one that its VMI leaves."""

    migration: VirtualMachineInstanceMigration
    node: str


def startable(
    waiting: Iterable[Candidate], running: Collection[str], settings: MigrationConfiguration
) -> set[Key]:
    """Return the migrations that may start now; ``running`` has the source node of each that runs.

    The highest priority goes first, then the oldest.  One that waits for its node keeps none back
    of another.
    """
    free = (settings.parallel_migrations_per_cluster or 0) - len(running)
    outbound, per_node = Counter(running), settings.parallel_outbound_migrations_per_node or 0
    started: set[Key] = set()
    for migration, node in sorted(waiting, key=_rank):
        if len(started) < free and outbound[node] < per_node:
            outbound[node] += 1
            started.add(migration.key)
    return started


def _rank(candidate: Candidate) -> tuple[int, str, Key]:
    migration = candidate.migration
    return -migration.priority, migration.metadata.creation_timestamp or "", migration.key
