"""Canonical forms of quantities, bytes and times, as Kubernetes stores them."""

import base64
import re
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final

from corral.api.quantity import canonical
from corral.api.time import parse_rfc3339, rfc3339, rfc3339_micro

_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", re.ASCII)
_MICRO_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", re.ASCII)

Form = Callable[[Any], Any]
"""Returns a value in its canonical form; an unreadable value unchanged."""


def quantity_text(value: Any) -> Any:
    """Return the canonical form of a quantity."""
    if type(value) not in (str, int, float):
        return value
    try:
        return canonical(value)
    except ValueError:
        return value


def unquoted_quantity(value: Any) -> Any:
    """Return a quantity of KubeVirt's kinds, which keep the text but quote a bare fraction."""
    return quantity_text(value) if type(value) is float else value


def encoded_text(value: Any) -> Any:
    """Return base64 on one line, as Go writes it; Go reads it on several."""
    if type(value) is not str:
        return value
    line = value.replace("\r", "").replace("\n", "")
    try:
        return base64.b64encode(base64.b64decode(line, validate=True)).decode()
    except ValueError:
        return value


def time_text(value: Any) -> Any:
    """Return a moment in the form of meta/v1 Time."""
    return _moment(value, rfc3339, _TIME)


def micro_time_text(value: Any) -> Any:
    """Return a moment in the form of meta/v1 MicroTime."""
    return _moment(value, rfc3339_micro, _MICRO_TIME)


def _moment(value: Any, written: Callable[[datetime], str], plain: re.Pattern[str]) -> Any:
    if type(value) is not str or plain.fullmatch(value):
        return value
    try:
        return written(parse_rfc3339(value))
    except ValueError:
        return value


FORMS: Final[Mapping[str, Form]] = {
    "quantity": quantity_text,
    "byte": encoded_text,
    "date-time": time_text,
}
"""Canonical forms by the ``format`` of a schema."""
_IN_MICROSECONDS: Final = frozenset({"acquireTime", "eventTime", "lastObservedTime", "renewTime"})
"""Fields of type MicroTime, which schemas do not distinguish from Time."""


def form_of(schema: Mapping[str, Any], field: str = "") -> Form | None:
    """Return the canonical form of a schema's values, in a field of a name."""
    form = FORMS.get(schema.get("format", ""))
    return micro_time_text if form is time_text and field in _IN_MICROSECONDS else form
