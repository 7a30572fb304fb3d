"""What a pool's status says of it.  Pure."""

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
    """Something about a pool that was refused: what its condition ReplicaFailure says."""

    def __init__(self, reason: str, doing: str, error: ApiError) -> None:
        super().__init__(f"error {doing}: {error}")
        self.reason = reason
        self.error = error


def raise_first(
    refused: Sequence[ApiError], reason: str, doing: str, *, lagging: bool = True
) -> None:
    """Raise what was refused: as a Failure, or as it is where only the cache lagged behind.

    ``lagging`` tells that a Conflict says no more than that.
    """
    told = [error for error in refused if not (lagging and isinstance(error, Conflict))]
    if told:
        raise Failure(reason, doing, told[0]) from told[0]
    if refused:
        raise refused[0]


class Report(NamedTuple):
    """The status as it is to be, and the events that go with the change."""

    status: Document
    events: list[tuple[str, str, str]]
    """Type, reason and message of each."""


def report(
    pool: VirtualMachinePool,
    owned: Sequence[VirtualMachine],
    selector: str,
    failure: Failure | None,
    now: datetime,
) -> Report | None:
    """What is to be told; None where the status says it already.

    A condition that is there stays as it is: it keeps the message, and the time, of the first.
    """
    old = pool.status
    counts = (len(owned), sum(map(is_ready, owned)))
    conditions = {each.type: each for each in old.conditions}
    wanted = {PAUSED: pool.spec.paused, FAILURE: failure is not None}
    same = all((name in conditions) is there for name, there in wanted.items())
    known = (old.replicas, old.ready_replicas)
    if same and known == counts and old.label_selector == selector:
        return None
    events = []
    kept = [each for each in old.conditions if wanted.get(each.type, True)]
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
    return Report(status, events)


def _condition(name: str, reason: str, message: str, now: datetime) -> Condition:
    return Condition(
        type=name,
        status="True",
        last_transition_time=rfc3339(now),
        reason=reason,
        message=message,
    )
