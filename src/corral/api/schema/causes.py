"""Causes of an invalid document, in the words of kube-openapi's validation."""

from collections.abc import Mapping
from typing import Any

from corral.api.errors import MAX_CAUSES, Cause, shortened

TYPE_NAMES: Mapping[type, str] = {
    type(None): "null",
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "string",
    list: "array",
    dict: "object",
}


class TooManyCausesError(Exception):
    """The list of causes is full; checking ends."""


class Causes(list[Cause]):
    """A list of causes that raises TooManyCausesError with one place left, which is UNCHECKED's."""

    @property
    def full(self) -> bool:
        return len(self) >= MAX_CAUSES - 1

    def append(self, cause: Cause) -> None:
        super().append(cause)
        if self.full:
            raise TooManyCausesError


def wrong_type(value: Any, path: str, expected: str) -> Cause:
    found = TYPE_NAMES[type(value)]
    message = f'Invalid value: "{found}": {path} in body must be of type {expected}: "{found}"'
    return Cause(path, message, "FieldValueTypeInvalid")


def invalid(value: Any, path: str, fault: str, reason: str = "FieldValueInvalid") -> Cause:
    return Cause(path, f"Invalid value: {shown(value)}: {path} in body {fault}", reason)


def shown(value: Any) -> str:
    """Return a value as messages show it: strings quoted, lists as their length."""
    if isinstance(value, list):
        return str(len(value))
    return f'"{shortened(value)}"' if isinstance(value, str) else shortened(str(value).lower())


def below(path: str, name: str) -> str:
    """Return the path of a field; the path of the document is empty."""
    return f"{path}.{name}" if path else name
