"""The one form in which Kubernetes keeps what may be written in several."""

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
"""Puts a value into its form; what cannot be read stays as it is."""


def quantity_text(value: Any) -> Any:
    """A quantity, however it was written."""
    if type(value) not in (str, int, float):
        return value
    try:
        return canonical(value)
    except ValueError:
        return value


def unquoted_quantity(value: Any) -> Any:
    """A quantity of KubeVirt's kinds, which keep what is written, but for a bare fraction."""
    return quantity_text(value) if type(value) is float else value


def encoded_text(value: Any) -> Any:
    """Bytes in base64, as Go reads and writes them: in any number of lines, and in one."""
    if type(value) is not str:
        return value
    line = value.replace("\r", "").replace("\n", "")
    try:
        return base64.b64encode(base64.b64decode(line, validate=True)).decode()
    except ValueError:
        return value


def time_text(value: Any) -> Any:
    """A moment as meta/v1 Time keeps it, however it was written."""
    return _moment(value, rfc3339, _TIME)


def micro_time_text(value: Any) -> Any:
    """A moment as meta/v1 MicroTime keeps it, however it was written."""
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
"""By the ``format`` in a schema."""
_IN_MICROSECONDS: Final = frozenset({"acquireTime", "eventTime", "lastObservedTime", "renewTime"})
"""Fields that are a MicroTime, which schemas do not tell from a Time."""


def form_of(schema: Mapping[str, Any], field: str = "") -> Form | None:
    """The form of what a schema describes, in a field of that name."""
    form = FORMS.get(schema.get("format", ""))
    return micro_time_text if form is time_text and field in _IN_MICROSECONDS else form
