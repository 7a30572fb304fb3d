"""Causes in the words of Kubernetes' validation (apimachinery's field errors)."""

from collections.abc import Iterable
from typing import Any

import msgspec

from corral.api.errors import Cause, shortened
from corral.api.kind import at
from corral.api.object import Document

_encode = msgspec.json.Encoder().encode
_sorted = msgspec.json.Encoder(order="sorted").encode
_CONDITION_FIELDS = ("type", "status", "lastTransitionTime", "reason")


def invalid(path: str, value: Any, fault: str) -> Cause:
    """Return the cause of an invalid value; ``fault`` says what it must be instead."""
    return Cause(path, f"Invalid value: {_quoted(value)}: {fault}")


def each_invalid(path: str, value: Any, faults: Iterable[str]) -> Iterable[Cause]:
    """Return one cause for each fault of a value."""
    return [invalid(path, value, fault) for fault in faults]


def required(path: str, why: str = "") -> Cause:
    return Cause(path, f"Required value: {why}" if why else "Required value", "FieldValueRequired")


def forbidden(path: str, why: str) -> Cause:
    return Cause(path, f"Forbidden: {why}", "FieldValueForbidden")


def duplicate(path: str, value: Any) -> Cause:
    return Cause(path, f"Duplicate value: {_quoted(value)}", "FieldValueDuplicate")


def too_many(path: str, count: int, most: int) -> Cause:
    message = f"Too many: {count}: must have at most {most} items"
    return Cause(path, message, "FieldValueTooMany")


def too_long(path: str, most: int) -> Cause:
    """Return the cause of a text of more than ``most`` bytes."""
    return Cause(path, f"Too long: may not be more than {most} bytes", "FieldValueTooLong")


def unsupported(path: str, value: Any, supported: Iterable[str]) -> Cause:
    listed = ", ".join(f'"{each}"' for each in sorted(supported))
    message = f"Unsupported value: {_quoted(value)}: supported values: {listed}"
    return Cause(path, message, "FieldValueNotSupported")


def status_condition_causes(document: Document, old: Document | None) -> Iterable[Cause]:
    """Check new conditions for missing fields (meta/v1 ValidateConditions).

    Only some kinds validate their conditions.
    """
    stored = {_sorted(condition) for condition in at(old, "status", "conditions") or ()}
    for index, condition in enumerate(at(document, "status", "conditions") or ()):
        missing = [name for name in _CONDITION_FIELDS if not condition.get(name)]
        if missing and _sorted(condition) not in stored:
            for name in missing:
                why = "is required" if name == "type" else ""
                yield required(f"status.conditions[{index}].{name}", why)


def _quoted(value: Any) -> str:
    """Return a value as messages show it: text in quotes, others as JSON."""
    if isinstance(value, str):
        return f'"{shortened(value)}"'
    return shortened(_encode(value).decode())
