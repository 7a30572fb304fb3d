"""Status of a PodDisruptionBudget, from its pods. Pure.

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
"""A pod that is not being deleted this long after its eviction counts as staying."""


@dataclass(frozen=True, slots=True)
class Unconfirmed:
    """Evicted pods whose deletion is not observed yet.

    ``since``: times of eviction by name; ``overdue``: pods that exceeded the deadline.
    """

    since: dict[str, str]
    overdue: Sequence[Pod]
    next_seconds: float | None
    """Seconds until the next one becomes overdue."""


def unconfirmed(budget: PodDisruptionBudget, pods: Sequence[Pod], now: datetime) -> Unconfirmed:
    """Return the evicted pods of a budget that are not being deleted yet."""
    recorded = (budget.status and budget.status.disruptedPods) or {}
    since: dict[str, str] = {}
    overdue: list[Pod] = []
    delays: list[float] = []
    for pod in pods:
        moment = recorded.get(key_of(pod).name)
        if moment is None or is_being_deleted(pod):
            continue
        left = parse_rfc3339(moment) + timedelta(seconds=DELETION_SECONDS) - now
        if left <= timedelta(0):
            overdue.append(pod)
        else:
            since[key_of(pod).name] = moment
            delays.append(left.total_seconds())
    return Unconfirmed(since, overdue, min(delays, default=None))


def is_healthy(pod: Pod) -> bool:
    """Report whether a pod is ready and not being deleted."""
    return is_ready(pod) and not is_being_deleted(pod)


def needs_scale(spec: PodDisruptionBudgetSpec | None) -> bool:
    """Report whether a budget's bound depends on the number of expected pods."""
    return spec is not None and (
        spec.maxUnavailable is not None or isinstance(spec.minAvailable, str)
    )


def desired(spec: PodDisruptionBudgetSpec | None, expected: int) -> int:
    """Return the number of pods that must be healthy. Raises ValueError for an invalid bound."""
    if spec is None:
        return 0
    if spec.maxUnavailable is not None:
        return max(0, expected - scaled(spec.maxUnavailable, expected))
    return scaled(spec.minAvailable, expected) if spec.minAvailable is not None else 0


def status(
    budget: PodDisruptionBudget,
    pods: Sequence[Pod],
    expected: int,
    evicted: Unconfirmed,
    now: datetime,
) -> Document:
    """Return the complete status. Raises ValueError for an invalid bound."""
    healthy = sum(is_healthy(pod) and key_of(pod).name not in evicted.since for pod in pods)
    desired_healthy = desired(budget.spec, expected)
    computed: Document = {
        "observedGeneration": _generation(budget),
        "currentHealthy": healthy,
        "desiredHealthy": desired_healthy,
        "expectedPods": expected,
        # A budget without pods allows nothing: new pods may exist before they are counted.
        "disruptionsAllowed": max(0, healthy - desired_healthy) if expected > 0 else 0,
    }
    if evicted.since:
        computed["disruptedPods"] = evicted.since
    return _with_conditions(budget, computed, now)


def failed(budget: PodDisruptionBudget, message: str, now: datetime) -> Document:
    """Return the status of a budget that cannot be computed: it allows no disruption."""
    computed = before(budget) | {
        "observedGeneration": _generation(budget),
        "disruptionsAllowed": 0,
    }
    return _with_conditions(budget, computed, now, failure=message)


def patch(budget: PodDisruptionBudget, after: Document) -> Document | None:
    """Return the merge patch to this status; None if it is unchanged."""
    old = before(budget)
    if old == after:
        return None
    recorded, kept = old.get("disruptedPods", {}), after.get("disruptedPods", {})
    forgotten = dict.fromkeys(recorded.keys() - kept.keys())
    return after | {"disruptedPods": {**forgotten, **kept} if kept else None}


def before(budget: PodDisruptionBudget) -> Document:
    """Return the present status, without empty fields."""
    whole: Document = msgspec.to_builtins(budget.status) if budget.status is not None else {}
    return {name: value for name, value in whole.items() if value not in (None, {})}


def _with_conditions(
    budget: PodDisruptionBudget, computed: Document, now: datetime, *, failure: str = ""
) -> Document:
    conditions = before(budget).get("conditions")
    current = computed | ({"conditions": conditions} if conditions else {})
    return computed | {"conditions": disruption_conditions(current, rfc3339(now), failure=failure)}


def _generation(budget: PodDisruptionBudget) -> int:
    return (budget.metadata and budget.metadata.generation) or 0
