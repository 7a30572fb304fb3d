"""ResourceQuota: limits on the total resources of a namespace."""

from collections.abc import Iterator, Sequence
from typing import Final

from lightkube.models.core_v1 import ResourceQuota

from corral.api.errors import Cause, limited
from corral.api.kind import Column, Verdict, at
from corral.api.kinds import resource_names
from corral.api.kinds.causes import each_invalid, forbidden, invalid, required, unsupported
from corral.api.kinds.columns import age
from corral.api.kinds.kubernetes_kind import kubernetes_kind
from corral.api.kinds.resource_names import COMPUTE_RESOURCES, LIMITS, REQUESTS
from corral.api.names import label_value_faults
from corral.api.object import Document
from corral.api.quantity import NANO, amount

TERMINATING: Final = "Terminating"
NOT_TERMINATING: Final = "NotTerminating"
BEST_EFFORT: Final = "BestEffort"
NOT_BEST_EFFORT: Final = "NotBestEffort"
PRIORITY_CLASS: Final = "PriorityClass"
CROSS_NAMESPACE: Final = "CrossNamespacePodAffinity"
ATTRIBUTES_CLASS: Final = "VolumeAttributesClass"
SCOPES: Final = (
    TERMINATING,
    NOT_TERMINATING,
    BEST_EFFORT,
    NOT_BEST_EFFORT,
    PRIORITY_CLASS,
    CROSS_NAMESPACE,
    ATTRIBUTES_CLASS,
)
"""Scopes: the last one selects PVCs, the others pods."""
OPERATORS: Final = ("In", "NotIn", "Exists", "DoesNotExist")
_WITH_VALUES: Final = ("In", "NotIn")
_EXISTS_ONLY: Final = (*SCOPES[:4], CROSS_NAMESPACE)
_CONFLICTS: Final = ({TERMINATING, NOT_TERMINATING}, {BEST_EFFORT, NOT_BEST_EFFORT})
_POD_RESOURCES: Final = {
    "pods",
    *COMPUTE_RESOURCES[:2],
    *(f"{part}{name}" for part in (REQUESTS, LIMITS) for name in COMPUTE_RESOURCES[:2]),
}
_CLAIM_RESOURCES: Final = {"persistentvolumeclaims", f"{REQUESTS}storage"}
_SCOPE_RESOURCES: Final = {BEST_EFFORT: {"pods"}, ATTRIBUTES_CLASS: _CLAIM_RESOURCES}
"""Resources that a scope applies to; other scopes apply to resources of pods."""


def validate(document: Document, old: Document | None, _user: str) -> Verdict:
    """Validate a quota beyond its schema."""
    causes = limited(
        [*_check_spec(document.get("spec") or {}), *_check_status(document.get("status") or {})]
    )
    if old is not None:
        scopes = at(document, "spec", "scopes") or []
        if set(scopes) != set(at(old, "spec", "scopes") or []):
            causes.append(invalid("spec.scopes", scopes, "field is immutable"))
    return Verdict(causes)


def _check_spec(spec: Document) -> Iterator[Cause]:
    hard = spec.get("hard") or {}
    yield from _check_amounts("spec.hard", hard)
    yield from _check_scopes("spec.scopes", spec.get("scopes") or [], hard)
    selector = spec.get("scopeSelector")
    if selector is not None:
        yield from _check_selector(
            "spec.scopeSelector.matchExpressions", selector.get("matchExpressions") or [], hard
        )


def _check_status(status: Document) -> Iterator[Cause]:
    for part in ("hard", "used"):
        yield from _check_amounts(f"status.{part}", status.get(part) or {})


def _check_amounts(path: str, quantities: Document) -> Iterator[Cause]:
    for name, quantity in quantities.items():
        here, nanos = f"{path}[{name}]", amount(quantity).nanos
        yield from each_invalid(here, name, resource_names.quota_faults(name))
        if nanos < 0:
            yield invalid(here, str(quantity), "must be greater than or equal to 0")
        if resource_names.is_whole(name) and nanos % NANO:
            yield invalid(here, str(quantity), "must be an integer")


def _check_scopes(path: str, scopes: Sequence[str], hard: Document) -> Iterator[Cause]:
    for scope in scopes:
        if scope not in SCOPES:
            yield invalid(path, list(scopes), "unsupported scope")
        elif any(not _applies(scope, name) for name in hard):
            yield invalid(path, list(scopes), "unsupported scope applied to resource")
    if any(pair <= set(scopes) for pair in _CONFLICTS):
        yield invalid(path, list(scopes), "conflicting scopes")


def _applies(scope: str, resource: str) -> bool:
    """Return whether a scope applies to a resource; for object counts it always does."""
    if resource not in resource_names.QUOTA_RESOURCES:
        return True
    return resource in _SCOPE_RESOURCES.get(scope, _POD_RESOURCES)


def _check_selector(path: str, expressions: Sequence[Document], hard: Document) -> Iterator[Cause]:
    scopes = [one.get("scopeName", "") for one in expressions]
    for one, scope in zip(expressions, scopes, strict=True):
        if scope not in SCOPES:
            yield invalid(f"{path}.scopeName", scope, "unsupported scope")
        elif any(not _applies(scope, name) for name in hard):
            why = "unsupported scope applied to resource"
            yield invalid(path, list(expressions), why)
        yield from _check_expression(path, one)
    if any(pair <= set(scopes) for pair in _CONFLICTS):
        yield invalid(path, list(expressions), "conflicting scopes")


def _check_expression(path: str, expression: Document) -> Iterator[Cause]:
    operator, values = expression.get("operator", ""), expression.get("values") or []
    if operator not in OPERATORS:
        yield unsupported(f"{path}.operator", operator, OPERATORS)
    elif expression.get("scopeName") in _EXISTS_ONLY and operator != "Exists":
        why = "only 'Exist' operator is supported for specified scopes"
        yield invalid(f"{path}.operator", operator, why)
    elif operator in _WITH_VALUES and not values:
        yield required(
            f"{path}.values",
            "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector",
        )
    elif operator not in _WITH_VALUES and values:
        yield forbidden(
            f"{path}.values",
            "may not be specified when `operator` is 'Exist' or 'DoesNotExist' for scope selector",
        )
    for value in values:
        yield from each_invalid(f"{path}.values", value, label_value_faults(value))


def _usage_text(document: Document, *, limits: bool) -> str:
    """Return used and hard limits as text: ``pods: 1/3, requests.cpu: 10m/1``."""
    hard, used = at(document, "status", "hard") or {}, at(document, "status", "used") or {}
    return ", ".join(
        f"{name}: {used.get(name, '0')}/{limit}"
        for name, limit in sorted(hard.items())
        if name.startswith(LIMITS) is limits
    )


RESOURCE_QUOTA = kubernetes_kind(
    group="",
    plural="resourcequotas",
    short=("quota",),
    view=ResourceQuota,
    columns=(
        Column(
            name="Request",
            cell=lambda document: _usage_text(document, limits=False),
            description="used and hard limits of counts and requests",
        ),
        Column(
            name="Limit",
            cell=lambda document: _usage_text(document, limits=True),
            description="used and hard limits of limits",
        ),
        age(),
    ),
    validate=validate,
)
