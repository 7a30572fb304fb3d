"""The status of a migration.  Pure."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

import msgspec

from corral.api.conditions import remove_condition, set_condition
from corral.api.kinds.kubevirt.migration import VirtualMachineInstanceMigration
from corral.api.kinds.vmi.migration_status import MigrationState
from corral.api.object import Document
from corral.api.time import rfc3339

ABORT_REQUESTED: Final = "migrationAbortRequested"
NO_QUOTA: Final = "migrationRejectedByResourceQuota"


def status(
    migration: VirtualMachineInstanceMigration,
    passed: Sequence[str],
    state: MigrationState | None,
    now: datetime,
    *,
    cancelled: bool,
    no_quota: bool,
) -> Document:
    """Return the changed fields of the status.

    ``passed`` are the phases that it enters; ``state`` is the migrationState that it shows.
    """
    old, moment = migration.status, rfc3339(now)
    changed: Document = {}
    if passed:
        entered = [{"phase": each, "phaseTransitionTimestamp": moment} for each in passed]
        history = msgspec.to_builtins(old.phase_transition_timestamps)
        changed["phase"] = passed[-1]
        changed["phaseTransitionTimestamps"] = [*history, *entered]
    before: list[Document] = msgspec.to_builtins(old.conditions)
    conditions = before
    for name, holds in ((ABORT_REQUESTED, cancelled), (NO_QUOTA, no_quota)):
        conditions = (
            set_condition(conditions, name, "True", now=moment)
            if holds
            else remove_condition(conditions, name)
        )
    if conditions != before:
        changed["conditions"] = conditions
    if state is not None and passed and state != old.migration_state:
        changed["migrationState"] = msgspec.to_builtins(state)
    return changed
