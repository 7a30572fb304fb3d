"""PodDisruptionBudget: how many of some pods may be taken away at once on purpose."""

import re
from collections.abc import Iterator
from typing import Any, Final

from lightkube.models.policy_v1 import PodDisruptionBudget

from corral.api.conditions import set_condition
from corral.api.errors import Cause, limited
from corral.api.kind import Column, Verdict, at
from corral.api.kinds.causes import invalid, of_conditions, unsupported
from corral.api.kinds.columns import age
from corral.api.kinds.kubernetes_kind import kubernetes_kind
from corral.api.kinds.label_selectors import selector_causes
from corral.api.object import Document

DISRUPTION_ALLOWED: Final = "DisruptionAllowed"
"""The condition that says whether pods may be evicted, and the reasons that it gives."""
SUFFICIENT: Final = "SufficientPods"
INSUFFICIENT: Final = "InsufficientPods"
SYNC_FAILED: Final = "SyncFailed"

HEALTHY_BUDGET: Final = "IfHealthyBudget"
ALWAYS_ALLOW: Final = "AlwaysAllow"
UNHEALTHY_POLICIES: Final = (HEALTHY_BUDGET, ALWAYS_ALLOW)
"""What may happen to pods that are not ready: they go where enough others are, or always."""

NOT_SET = "N/A"
_PERCENT = re.compile(r"([0-9]+)%", re.ASCII)
_NO_PERCENT = (
    "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or "
    "'93%', regex used for validation is '[0-9]+%')"
)
_COUNTS = ("currentHealthy", "desiredHealthy", "disruptionsAllowed", "expectedPods")


def scaled(bound: int | str, whole: int) -> int:
    """A bound as a number of pods, percentages being of ``whole`` and rounded up.

    Raises ValueError for a text that is no percentage.
    """
    if isinstance(bound, int):
        return bound
    match = _PERCENT.fullmatch(bound)
    if match is None:
        raise ValueError(f'invalid value for IntOrString: invalid type: "{bound}" is no percentage')
    return -(-int(match[1]) * whole // 100)


def told(status: Document, now: str, *, failure: str = "") -> list[Document]:
    """The conditions of a budget with this status; ``failure`` says why it could not be reckoned.

    ``now`` is a time in RFC 3339.
    """
    allowed = (status.get("disruptionsAllowed") or 0) > 0
    reason = SYNC_FAILED if failure else SUFFICIENT if allowed else INSUFFICIENT
    word = "True" if allowed else "False"
    conditions = set_condition(
        status.get("conditions"), DISRUPTION_ALLOWED, word, reason=reason, now=now
    )
    said = {"message": failure, "observedGeneration": status.get("observedGeneration") or 0}
    return [one | said if one["type"] == DISRUPTION_ALLOWED else one for one in conditions]


def validate(document: Document, old: Document | None, _user: str) -> Verdict:
    """One bound, and one that can be meant; selectors that can be understood in one way only."""
    spec = _spec(document.get("spec") or {})
    return Verdict(limited([*spec, *_status(document), *of_conditions(document, old)]))


def _spec(spec: Document) -> Iterator[Cause]:
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
    """What is wrong with a number of pods that may be a share of them in percent."""
    if isinstance(bound, int):
        if bound < 0:
            yield invalid(path, bound, "must be greater than or equal to 0")
        return
    match = _PERCENT.fullmatch(bound)
    if match is None:
        yield invalid(path, bound, _NO_PERCENT)
    elif len(match[1]) > len("100") or int(match[1]) > 100:
        yield invalid(path, bound, "must not be greater than 100%")


def _status(document: Document) -> Iterator[Cause]:
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
