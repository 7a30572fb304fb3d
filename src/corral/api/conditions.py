"""Conditions: what is known about an object, one entry a type, with the time it last turned.

The functions work on the list that a document holds under ``status.conditions`` and answer a new
one, so that a caller sees by comparing whether there is anything to write.  KubeVirt removes a
condition that no longer holds; Kubernetes sets it False.
"""

from collections.abc import Iterable, Sequence
from typing import Any

ConditionDocument = dict[str, Any]


def get_condition(
    conditions: Iterable[ConditionDocument] | None, condition_type: str
) -> ConditionDocument | None:
    """The condition of a type, or None."""
    return next((one for one in conditions or () if one.get("type") == condition_type), None)


def set_condition(
    conditions: Sequence[ConditionDocument] | None,
    condition_type: str,
    status: str,
    *,
    reason: str = "",
    message: str = "",
    now: str,
) -> list[ConditionDocument]:
    """The conditions with one set; its transition time moves only when its status turns.

    ``status`` is ``True``, ``False`` or ``Unknown``; ``now`` is a time in RFC 3339.  What
    others noted in the condition (``lastProbeTime``, ``observedGeneration``) is kept.
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
    """The conditions without that of a type."""
    return [one for one in conditions or () if one.get("type") != condition_type]
