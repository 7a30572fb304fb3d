"""PodDisruptionBudget: how many of a set of pods may be evicted at once."""

import re
from collections.abc import Iterator
from typing import Any, Final

import msgspec
from lightkube.models.policy_v1 import PodDisruptionBudget

from corral.api.conditions import set_condition
from corral.api.errors import BadRequest, Cause, limited
from corral.api.kind import Column, Verdict, at
from corral.api.kinds.causes import invalid, status_condition_causes, unsupported
from corral.api.kinds.columns import age
from corral.api.kinds.kubernetes_kind import kubernetes_kind
from corral.api.kinds.label_selectors import selector_causes
from corral.api.object import Document
from corral.api.selectors import NOTHING, LabelSelector, label_selector

DISRUPTION_ALLOWED: Final = "DisruptionAllowed"
"""The condition of a budget, and its reasons."""
SUFFICIENT: Final = "SufficientPods"
INSUFFICIENT: Final = "InsufficientPods"
SYNC_FAILED: Final = "SyncFailed"

HEALTHY_BUDGET: Final = "IfHealthyBudget"
ALWAYS_ALLOW: Final = "AlwaysAllow"
UNHEALTHY_POLICIES: Final = (HEALTHY_BUDGET, ALWAYS_ALLOW)
"""Policies for pods that are not ready: evict them if enough others are healthy, or always."""

NOT_SET = "N/A"
_PERCENT = re.compile(r"([0-9]+)%", re.ASCII)
_NO_PERCENT = (
    "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or "
    "'93%', regex used for validation is '[0-9]+%')"
)
_COUNTS = ("currentHealthy", "desiredHealthy", "disruptionsAllowed", "expectedPods")


def selector_of(budget: PodDisruptionBudget) -> LabelSelector:
    """Return the selector of a budget; one that selects nothing if it is invalid."""
    selector = budget.spec.selector if budget.spec is not None else None
    try:
        return label_selector(None if selector is None else msgspec.to_builtins(selector))
    except BadRequest:  # stored before its rules were checked
        return NOTHING


def scaled(bound: int | str, whole: int) -> int:
    """Return a bound as a number of pods; percentages are of ``whole``, rounded up.

    Raises ValueError for a text that is no percentage.
    """
    if isinstance(bound, int):
        return bound
    match = _PERCENT.fullmatch(bound)
    if match is None:
        raise ValueError(f'invalid value for IntOrString: invalid type: "{bound}" is no percentage')
    return -(-int(match[1]) * whole // 100)


def disruption_conditions(status: Document, now: str, *, failure: str = "") -> list[Document]:
    """Return the conditions of a budget with this status; ``failure`` is why its sync failed.

    ``now`` is a time in RFC 3339.
    """
    allowed = (status.get("disruptionsAllowed") or 0) > 0
    reason = SYNC_FAILED if failure else SUFFICIENT if allowed else INSUFFICIENT
    word = "True" if allowed else "False"
    conditions = set_condition(
        status.get("conditions"), DISRUPTION_ALLOWED, word, reason=reason, now=now
    )
    details = {"message": failure, "observedGeneration": status.get("observedGeneration") or 0}
    return [one | details if one["type"] == DISRUPTION_ALLOWED else one for one in conditions]


def validate(document: Document, old: Document | None, _user: str) -> Verdict:
    """Validate a budget: it has one valid bound, and a valid selector."""
    spec = _check_spec(document.get("spec") or {})
    return Verdict(
        limited([*spec, *_check_status(document), *status_condition_causes(document, old)])
    )


def _check_spec(spec: Document) -> Iterator[Cause]:
    bounds = [name for name in ("minAvailable", "maxUnavailable") if spec.get(name) is not None]
    if len(bounds) > 1:
        yield invalid("spec", spec, "minAvailable and maxUnavailable cannot be both set")
    for name in bounds:
        yield from bound_causes(f"spec.{name}", spec[name])
    yield from selector_causes("spec.selector", spec.get("selector") or {})
    policy = spec.get("unhealthyPodEvictionPolicy")
    if policy is not None and policy not in UNHEALTHY_POLICIES:
        yield unsupported("spec.unhealthyPodEvictionPolicy", policy, UNHEALTHY_POLICIES)


def bound_causes(path: str, bound: int | str) -> Iterator[Cause]:
    """Check a number of pods or a percentage."""
    if isinstance(bound, int):
        if bound < 0:
            yield invalid(path, bound, "must be greater than or equal to 0")
        return
    match = _PERCENT.fullmatch(bound)
    if match is None:
        yield invalid(path, bound, _NO_PERCENT)
    elif len(match[1]) > len("100") or int(match[1]) > 100:
        yield invalid(path, bound, "must not be greater than 100%")


def _check_status(document: Document) -> Iterator[Cause]:
    for name in _COUNTS:
        count = at(document, "status", name)
        if count is not None and count < 0:
            yield invalid(f"status.{name}", count, "must be greater than or equal to 0")


def _bound_column(name: str, field: str) -> Column:
    def cell(document: Document) -> str:
        bound: Any = at(document, "spec", field)
        return NOT_SET if bound is None else str(bound)

    return Column(name=name, cell=cell, description="pods, or a share of them")


POD_DISRUPTION_BUDGET = kubernetes_kind(
    group="policy",
    plural="poddisruptionbudgets",
    short=("pdb",),
    view=PodDisruptionBudget,
    columns=(
        _bound_column("Min Available", "minAvailable"),
        _bound_column("Max Unavailable", "maxUnavailable"),
        Column(
            name="Allowed Disruptions",
            type="integer",
            cell=lambda document: at(document, "status", "disruptionsAllowed") or 0,
            description="pods that may be evicted now",
        ),
        age(),
    ),
    validate=validate,
)
