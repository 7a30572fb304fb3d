"""Validation of label selectors (meta/v1 LabelSelector), by apimachinery's rules."""

from collections.abc import Iterator
from typing import Final

from corral.api.errors import Cause
from corral.api.kinds.causes import each_invalid, forbidden, invalid, required
from corral.api.names import label_key_faults, label_value_faults
from corral.api.object import Document

_TAKES_VALUES = {"In": True, "NotIn": True, "Exists": False, "DoesNotExist": False}
"""Operators of selectors, and whether they have values."""
MOST_REQUIREMENTS: Final = 1000
"""The most labels, expressions and values of a selector: it is matched on each change."""


def selector_causes(path: str, selector: Document) -> Iterator[Cause]:
    """Check a label selector."""
    if too_many := count_causes(path, selector):
        yield from too_many
        return
    for key, value in (selector.get("matchLabels") or {}).items():
        yield from each_invalid(f"{path}.matchLabels", key, label_key_faults(key))
        yield from each_invalid(f"{path}.matchLabels", value, label_value_faults(value))
    for index, expression in enumerate(selector.get("matchExpressions") or ()):
        yield from _expression(f"{path}.matchExpressions[{index}]", expression)


def count_causes(path: str, selector: Document) -> list[Cause]:
    """Check that a selector is small enough to be matched quickly."""
    expressions = selector.get("matchExpressions") or ()
    count = len(selector.get("matchLabels") or ()) + len(expressions)
    count += sum(len(each.get("values") or ()) for each in expressions)
    if count <= MOST_REQUIREMENTS:
        return []
    most = f"{MOST_REQUIREMENTS} labels, expressions and values"
    return [Cause(path, f"Too many: {count}: must have at most {most}", "FieldValueTooMany")]


def _expression(path: str, expression: Document) -> Iterator[Cause]:
    operator, values = expression["operator"], expression.get("values") or []
    if operator not in _TAKES_VALUES:
        yield invalid(f"{path}.operator", operator, "not a valid selector operator")
    elif _TAKES_VALUES[operator] and not values:
        yield required(f"{path}.values", "must be specified when `operator` is 'In' or 'NotIn'")
    elif values and not _TAKES_VALUES[operator]:
        why = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
        yield forbidden(f"{path}.values", why)
    yield from each_invalid(f"{path}.key", expression["key"], label_key_faults(expression["key"]))
    for index, value in enumerate(values):
        yield from each_invalid(f"{path}.values[{index}]", value, label_value_faults(value))
