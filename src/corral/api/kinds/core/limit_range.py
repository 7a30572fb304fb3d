"""LimitRange: bounds and defaults of the resources of containers, pods and PVCs."""

from collections.abc import Iterator
from typing import Final

from lightkube.models.core_v1 import LimitRange

from corral.api.errors import Cause, limited
from corral.api.kind import Verdict, at
from corral.api.kinds import resource_names
from corral.api.kinds.causes import duplicate, each_invalid, forbidden, invalid, required
from corral.api.kinds.columns import created_at
from corral.api.kinds.kubernetes_kind import kubernetes_kind
from corral.api.kinds.resource_names import STORAGE
from corral.api.names import label_key_faults
from corral.api.object import Document
from corral.api.quantity import Amount, amount, parse

CONTAINER: Final = "Container"
POD: Final = "Pod"
CLAIM: Final = "PersistentVolumeClaim"
TYPES: Final = (CONTAINER, POD, CLAIM)
DEFAULTS: Final = ("default", "defaultRequest")
PARTS: Final = ("max", "min", *DEFAULTS, "maxLimitRequestRatio")
_ONE: Final = parse("1")

_ORDER: Final = (
    ("min", "max", "min", "min", "min value {0} is greater than max value {1}"),
    (
        *("min", "defaultRequest", "defaultRequest", "defaultRequest"),
        "min value {0} is greater than default request value {1}",
    ),
    (
        *("defaultRequest", "max", "defaultRequest", "defaultRequest"),
        "default request value {0} is greater than max value {1}",
    ),
    (
        *("defaultRequest", "default", "defaultRequest", "defaultRequest"),
        "default request value {0} is greater than default limit value {1}",
    ),
    ("min", "default", "default", "min", "min value {0} is greater than default value {1}"),
    ("default", "max", "default", "max", "default value {0} is greater than max value {1}"),
)
"""Lesser and greater part; field and value that the cause shows, and its message."""


def default(document: Document) -> None:
    """Default the default limit to the maximum, the default request to the limit or the minimum.

    Only for containers (SetDefaults_LimitRangeItem); pods and PVCs have no defaults.
    """
    for item in at(document, "spec", "limits") or ():
        if item.get("type") == CONTAINER:
            limits = (item.get("max") or {}) | (item.get("default") or {})
            requests = (item.get("min") or {}) | limits | (item.get("defaultRequest") or {})
            item |= {
                name: values
                for name, values in zip(DEFAULTS, (limits, requests), strict=True)
                if values
            }


def validate(document: Document, _old: Document | None, _user: str) -> Verdict:
    """Validate a limit range beyond its schema."""
    return Verdict(limited(_check_items(at(document, "spec", "limits") or [])))


def _check_items(items: list[Document]) -> Iterator[Cause]:
    seen: set[str] = set()
    for index, item in enumerate(items):
        path, limit_type = f"spec.limits[{index}]", item.get("type") or ""
        faults = label_key_faults(limit_type)
        if not faults and "/" not in limit_type and limit_type not in TYPES:
            faults = ["must be a standard limit type or fully qualified"]
        yield from each_invalid(f"{path}.type", limit_type, faults)
        if limit_type in seen:
            yield duplicate(f"{path}.type", limit_type)
        seen.add(limit_type)
        yield from _check_names(path, limit_type, item)
        yield from _check_item(path, limit_type, item)


def _check_names(path: str, limit_type: str, item: Document) -> Iterator[Cause]:
    check = (
        resource_names.container_faults if limit_type in (CONTAINER, POD) else resource_names.faults
    )
    for part in PARTS:
        if limit_type == POD and part in DEFAULTS:
            if item.get(part):
                yield forbidden(f"{path}.{part}", "may not be specified when `type` is 'Pod'")
            continue
        for name in item.get(part) or ():
            yield from each_invalid(f"{path}.{part}[{name}]", name, check(name))


def _check_item(path: str, limit_type: str, item: Document) -> Iterator[Cause]:
    if limit_type == CLAIM and not any(
        STORAGE in (item.get(part) or {}) for part in ("min", "max")
    ):
        why = "either minimum or maximum storage value is required, but neither was provided"
        yield required(f"{path}.limits", why)
    present = {
        part: item.get(part) or {} for part in PARTS if not (limit_type == POD and part in DEFAULTS)
    }
    for name in sorted({name for values in present.values() for name in values}):
        yield from _check_amounts(
            path,
            name,
            {part: amount(values[name]) for part, values in present.items() if name in values},
        )


def _check_amounts(path: str, name: str, present: dict[str, Amount]) -> Iterator[Cause]:
    for lesser, greater, field, shown, words in _ORDER:
        if lesser in present and greater in present and present[lesser] > present[greater]:
            text = words.format(present[lesser], present[greater])
            yield invalid(f"{path}.{field}[{name}]", str(present[shown]), text)
    ratio = present.get("maxLimitRequestRatio")
    if ratio is None:
        return
    here = f"{path}.maxLimitRequestRatio[{name}]"
    if ratio < _ONE:
        yield invalid(here, str(ratio), f"ratio {ratio} is less than 1")
    least, most = present.get("min"), present.get("max")
    if least and most is not None and ratio.nanos * least.nanos > most.nanos * _ONE.nanos:
        bound = most.nanos / least.nanos
        yield invalid(here, str(ratio), f"ratio {ratio} is greater than max/min = {bound:f}")


LIMIT_RANGE = kubernetes_kind(
    group="",
    plural="limitranges",
    short=("limits",),
    view=LimitRange,
    status=False,
    columns=(created_at(),),
    default=default,
    validate=validate,
)
