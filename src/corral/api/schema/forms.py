"""The one form in which Kubernetes keeps what may be written in several."""

import base64
from collections.abc import Callable, Mapping
from typing import Any, Final

from corral.api.quantity import canonical

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


def encoded_text(value: Any) -> Any:
    """Bytes in base64, as Go reads and writes them: in any number of lines, and in one."""
    if type(value) is not str:
        return value
    line = value.replace("\r", "").replace("\n", "")
    try:
        return base64.b64encode(base64.b64decode(line, validate=True)).decode()
    except ValueError:
        return value


FORMS: Final[Mapping[str, Form]] = {"quantity": quantity_text, "byte": encoded_text}
"""By the ``format`` in a schema."""
