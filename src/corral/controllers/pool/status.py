"""Status and events of a pool. Pure."""

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

import msgspec

from corral.api.errors import ApiError, Conflict
from corral.api.kinds.kubevirt.pool import VirtualMachinePool
from corral.api.kinds.kubevirt.virtualmachine import VirtualMachine
from corral.api.object import Condition, Document
from corral.api.time import rfc3339
from corral.controllers.pool.availability import is_ready

PAUSED = "ReplicaPaused"
FAILURE = "ReplicaFailure"


class Failure(Exception):
    """A refused operation on a pool, for the condition ReplicaFailure."""

    def __init__(self, reason: str, doing: str, error: ApiError) -> None:
        super().__init__(f"error {doing}: {error}")
        self.reason = reason
        self.error = error


def raise_first(
    errors: Sequence[ApiError], reason: str, doing: str, *, lagging: bool = True
) -> None:
    """Raise the first error as a Failure, or as it is if the cache only lagged behind.

    ``lagging``: a Conflict means just that.
    """
    failures = [error for error in errors if not (lagging and isinstance(error, Conflict))]
    if failures:
        raise Failure(reason, doing, failures[0]) from failures[0]
    if errors:
        raise errors[0]


class StatusUpdate(NamedTuple):
    """The new status, and the events of the change."""

    status: Document
    events: list[tuple[str, str, str]]
    """Type, reason and message of each."""


def status_update(
    pool: VirtualMachinePool,
    owned: Sequence[VirtualMachine],
    selector: str,
    failure: Failure | None,
    now: datetime,
) -> StatusUpdate | None:
    """Return the change of the status; None if there is none.

    A condition that is there stays as it is, with the message and time of the first failure.
    """
    old = pool.status
    counts = (len(owned), sum(map(is_ready, owned)))
    conditions = {each.type: each for each in old.conditions}
    desired = {PAUSED: pool.spec.paused, FAILURE: failure is not None}
    same_conditions = all((name in conditions) is present for name, present in desired.items())
    same_counts = (old.replicas, old.ready_replicas) == counts
    if same_conditions and same_counts and old.label_selector == selector:
        return None
    events = []
    kept = [each for each in old.conditions if desired.get(each.type, True)]
    if pool.spec.paused and PAUSED not in conditions:
        kept.append(_condition(PAUSED, "SuccessfulPaused", "Pool controller is paused", now))
        events.append(("Normal", "SuccessfulPaused", "Pool is paused"))
    if not pool.spec.paused and PAUSED in conditions:
        events.append(("Normal", "SuccessfulResume", "Pool is unpaused"))
    if failure is not None and FAILURE not in conditions:
        kept.append(_condition(FAILURE, failure.reason, str(failure), now))
        events.append(("Warning", failure.reason, str(failure)))
    status = {
        "replicas": counts[0],
        "readyReplicas": counts[1],
        "labelSelector": selector,
        "conditions": msgspec.to_builtins(kept) or None,
    }
    return StatusUpdate(status, events)


def _condition(name: str, reason: str, message: str, now: datetime) -> Condition:
    return Condition(
        type=name,
        status="True",
        last_transition_time=rfc3339(now),
        reason=reason,
        message=message,
    )
