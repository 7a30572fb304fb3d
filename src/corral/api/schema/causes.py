"""Collects what is wrong with a document, in the words of kube-openapi's validation."""

from collections.abc import Mapping
from typing import Any

from corral.api.errors import MOST_CAUSES, Cause, shortened

TYPE_NAMES: Mapping[type, str] = {
    type(None): "null",
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "string",
    list: "array",
    dict: "object",
}


class EnoughError(Exception):
    """So much is wrong that the rest need not be looked at."""


class Causes(list[Cause]):
    """What has been found to be wrong; with one place left, finding ends."""

    @property
    def full(self) -> bool:
        return len(self) >= MOST_CAUSES - 1

    def append(self, cause: Cause) -> None:
        super().append(cause)
        if self.full:
            raise EnoughError


def wrong_type(value: Any, path: str, wanted: str) -> Cause:
    found = TYPE_NAMES[type(value)]
    message = f'Invalid value: "{found}": {path} in body must be of type {wanted}: "{found}"'
    return Cause(path, message, "FieldValueTypeInvalid")


def invalid(value: Any, path: str, fault: str, reason: str = "FieldValueInvalid") -> Cause:
    return Cause(path, f"Invalid value: {shown(value)}: {path} in body {fault}", reason)


def shown(value: Any) -> str:
    """A value as messages show it: strings in quotes, lists by how many they are."""
    if isinstance(value, list):
        return str(len(value))
    return f'"{shortened(value)}"' if isinstance(value, str) else shortened(str(value).lower())


def below(path: str, name: str) -> str:
    """The path of a field; that of the document itself is empty."""
    return f"{path}.{name}" if path else name
