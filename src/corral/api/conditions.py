"""Conditions of an object: ``status.conditions``.

The functions return a new list, so that a caller can compare whether there is anything to write.
KubeVirt removes a condition that no longer holds; Kubernetes sets it to False.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from corral.api.kind import at

ConditionDocument = dict[str, Any]


def get_condition(
    conditions: Iterable[ConditionDocument] | None, condition_type: str
) -> ConditionDocument | None:
    """Return the condition of a type, or None."""
    return next((one for one in conditions or () if one.get("type") == condition_type), None)


def is_condition_true(document: Mapping[str, Any], condition_type: str) -> bool:
    """Return whether a condition of an object is True."""
    found = get_condition(at(dict(document), "status", "conditions"), condition_type)
    return found is not None and found.get("status") == "True"


def set_condition(
    conditions: Sequence[ConditionDocument] | None,
    condition_type: str,
    status: str,
    *,
    reason: str = "",
    message: str = "",
    now: str,
) -> list[ConditionDocument]:
    """Return the conditions with one set; its transition time changes only with its status.

    ``status`` is ``True``, ``False`` or ``Unknown``; ``now`` is a time in RFC 3339.  Other fields
    of the condition (``lastProbeTime``, ``observedGeneration``) are kept.
    """
    old = get_condition(conditions, condition_type) or {}
    since = old.get("lastTransitionTime") if old.get("status") == status else None
    new = old | {"type": condition_type, "status": status}
    new["lastTransitionTime"] = since or now
    for name, value in (("reason", reason), ("message", message)):
        if value:
            new[name] = value
        else:
            new.pop(name, None)
    if not old:
        return [*(conditions or ()), new]
    return [new if one is old else one for one in conditions or ()]


def remove_condition(
    conditions: Sequence[ConditionDocument] | None, condition_type: str
) -> list[ConditionDocument]:
    """Return the conditions without that of a type."""
    return [one for one in conditions or () if one.get("type") != condition_type]
