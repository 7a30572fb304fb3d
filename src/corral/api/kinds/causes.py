"""Causes of refusal as Kubernetes' own rules word them (apimachinery's field errors)."""

from collections.abc import Iterable
from typing import Any

import msgspec

from corral.api.errors import Cause, shortened
from corral.api.kind import at
from corral.api.object import Document

_encode = msgspec.json.Encoder().encode
_sorted = msgspec.json.Encoder(order="sorted").encode
_OF_CONDITIONS = ("type", "status", "lastTransitionTime", "reason")


def invalid(path: str, value: Any, fault: str) -> Cause:
    """A value that cannot be; ``fault`` says what it must be instead."""
    return Cause(path, f"Invalid value: {_shown(value)}: {fault}")


def each_invalid(path: str, value: Any, faults: Iterable[str]) -> Iterable[Cause]:
    """One cause for each fault of a value."""
    return [invalid(path, value, fault) for fault in faults]


def required(path: str, why: str = "") -> Cause:
    return Cause(path, f"Required value: {why}" if why else "Required value", "FieldValueRequired")


def forbidden(path: str, why: str) -> Cause:
    return Cause(path, f"Forbidden: {why}", "FieldValueForbidden")


def duplicate(path: str, value: Any) -> Cause:
    return Cause(path, f"Duplicate value: {_shown(value)}", "FieldValueDuplicate")


def too_many(path: str, count: int, most: int) -> Cause:
    message = f"Too many: {count}: must have at most {most} items"
    return Cause(path, message, "FieldValueTooMany")


def too_long(path: str, most: int) -> Cause:
    """A text of more than so many bytes."""
    return Cause(path, f"Too long: may not be more than {most} bytes", "FieldValueTooLong")


def unsupported(path: str, value: Any, supported: Iterable[str]) -> Cause:
    listed = ", ".join(f'"{each}"' for each in sorted(supported))
    message = f"Unsupported value: {_shown(value)}: supported values: {listed}"
    return Cause(path, message, "FieldValueNotSupported")


def of_conditions(document: Document, old: Document | None) -> Iterable[Cause]:
    """What is missing of conditions that follow meta/v1 (its ValidateConditions), if they are new.

    Many kinds ask nothing of conditions.
    """
    known = {_sorted(condition) for condition in at(old, "status", "conditions") or ()}
    for index, condition in enumerate(at(document, "status", "conditions") or ()):
        missing = [name for name in _OF_CONDITIONS if not condition.get(name)]
        if missing and _sorted(condition) not in known:
            for name in missing:
                why = "is required" if name == "type" else ""
                yield required(f"status.conditions[{index}].{name}", why)


def _shown(value: Any) -> str:
    """A value as messages show it: text in quotes, everything else as JSON."""
    if isinstance(value, str):
        return f'"{shortened(value)}"'
    return shortened(_encode(value).decode())
