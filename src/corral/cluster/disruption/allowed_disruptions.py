"""From a budget and its pods to what it allows.  Pure.

The rules are those of Kubernetes' disruption controller (disruption.go).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import msgspec
from lightkube.models.core_v1 import Pod
from lightkube.models.policy_v1 import PodDisruptionBudget, PodDisruptionBudgetSpec

from corral.api.kinds.pod_disruption_budget import disruption_conditions, scaled
from corral.api.object import Document
from corral.api.time import parse_rfc3339, rfc3339
from corral.reconcile.objects import is_being_deleted, is_ready, key_of

DELETION_SECONDS = 120.0
"""A pod whose eviction was allowed, and that is not going after this time, stays after all."""


@dataclass(frozen=True, slots=True)
class Unconfirmed:
    """Pods whose eviction was allowed and that are not seen to go yet.

    ``since`` says from when, by name; ``overdue`` are those that will not go any more.
    """

    since: dict[str, str]
    overdue: Sequence[Pod]
    next_seconds: float | None
    """When the next one of them is overdue."""


def unconfirmed(budget: PodDisruptionBudget, pods: Sequence[Pod], now: datetime) -> Unconfirmed:
    """Which of a budget's pods the server let go of, as far as they are there still."""
    noted = (budget.status and budget.status.disruptedPods) or {}
    since: dict[str, str] = {}
    overdue: list[Pod] = []
    waits: list[float] = []
    for pod in pods:
        moment = noted.get(key_of(pod).name)
        if moment is None or is_being_deleted(pod):
            continue
        left = parse_rfc3339(moment) + timedelta(seconds=DELETION_SECONDS) - now
        if left <= timedelta(0):
            overdue.append(pod)
        else:
            since[key_of(pod).name] = moment
            waits.append(left.total_seconds())
    return Unconfirmed(since, overdue, min(waits, default=None))


def is_healthy(pod: Pod) -> bool:
    """Whether a pod is ready, and not about to go."""
    return is_ready(pod) and not is_being_deleted(pod)


def needs_scale(spec: PodDisruptionBudgetSpec | None) -> bool:
    """Whether a budget's bound says nothing without the number of pods that there should be."""
    return spec is not None and (
        spec.maxUnavailable is not None or isinstance(spec.minAvailable, str)
    )


def desired(spec: PodDisruptionBudgetSpec | None, expected: int) -> int:
    """How many healthy pods there have to be.  Raises ValueError for a bound that is none."""
    if spec is None:
        return 0
    if spec.maxUnavailable is not None:
        return max(0, expected - scaled(spec.maxUnavailable, expected))
    return scaled(spec.minAvailable, expected) if spec.minAvailable is not None else 0


def status(
    budget: PodDisruptionBudget,
    pods: Sequence[Pod],
    expected: int,
    going: Unconfirmed,
    now: datetime,
) -> Document:
    """The budget's whole status.  Raises ValueError for a bound that is none."""
    healthy = sum(is_healthy(pod) and key_of(pod).name not in going.since for pod in pods)
    wanted = desired(budget.spec, expected)
    reckoned: Document = {
        "observedGeneration": _generation(budget),
        "currentHealthy": healthy,
        "desiredHealthy": wanted,
        "expectedPods": expected,
        # A budget without pods allows nothing: the first ones appear before they are counted.
        "disruptionsAllowed": max(0, healthy - wanted) if expected > 0 else 0,
    }
    if going.since:
        reckoned["disruptedPods"] = going.since
    return _with_conditions(budget, reckoned, now)


def failed(budget: PodDisruptionBudget, why: str, now: datetime) -> Document:
    """The status of a budget that cannot be reckoned: nothing is allowed."""
    reckoned = before(budget) | {
        "observedGeneration": _generation(budget),
        "disruptionsAllowed": 0,
    }
    return _with_conditions(budget, reckoned, now, failure=why)


def patch(budget: PodDisruptionBudget, after: Document) -> Document | None:
    """The merge patch that makes this the status; None where it is that already."""
    old = before(budget)
    if old == after:
        return None
    noted, kept = old.get("disruptedPods", {}), after.get("disruptedPods", {})
    forgotten = dict.fromkeys(noted.keys() - kept.keys())
    return after | {"disruptedPods": {**forgotten, **kept} if kept else None}


def before(budget: PodDisruptionBudget) -> Document:
    """The status that a budget has, without what it does not say."""
    whole: Document = msgspec.to_builtins(budget.status) if budget.status is not None else {}
    return {name: value for name, value in whole.items() if value not in (None, {})}


def _with_conditions(
    budget: PodDisruptionBudget, reckoned: Document, now: datetime, *, failure: str = ""
) -> Document:
    conditions = before(budget).get("conditions")
    known = reckoned | ({"conditions": conditions} if conditions else {})
    return reckoned | {"conditions": disruption_conditions(known, rfc3339(now), failure=failure)}


def _generation(budget: PodDisruptionBudget) -> int:
    return (budget.metadata and budget.metadata.generation) or 0
