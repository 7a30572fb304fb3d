"""Flags with several parameters, in virtctl's syntax: ``--flag name:value,name:value``."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NoReturn

from corral.api.quantity import parse
from corral.cli.errors import Problem


def fail(flag: str, error: str) -> NoReturn:
    """Raises Problem for a flag, with virtctl's message."""
    raise Problem(f'failed to parse "--{flag}" flag: {error}')


@dataclass(frozen=True, slots=True)
class Parameters:
    """The parameters of one flag; unknown names were rejected."""

    flag: str
    values: Mapping[str, str]

    def get(self, name: str) -> str:
        """Return a parameter; empty if it is missing."""
        return self.values.get(name, "")

    def require(self, name: str) -> str:
        """Return a required parameter.  Raises Problem."""
        return self.get(name) or fail(self.flag, f"{name} must be specified")

    def number(self, name: str) -> int | None:
        """Return a numeric parameter; None if it is missing.  Raises Problem."""
        text = self.get(name)
        if not text:
            return None
        if not text.isascii() or not text.isdigit():
            fail(self.flag, f'failed to parse param "{name}": {text!r} is not a whole number')
        return int(text)

    def quantity(self, name: str) -> str:
        """Return a quantity; empty if it is missing.  Raises Problem."""
        if text := self.get(name):
            quantity(self.flag, text, f'failed to parse param "{name}": ')
        return text

    def list_(self, name: str) -> list[str]:
        """Return a list parameter, whose items are separated by semicolons."""
        return self.get(name).split(";") if self.get(name) else []


def parameters(flag: str, text: str, names: str) -> Parameters:
    """Parse a flag; ``names`` are its parameters, separated by blanks.  Raises Problem."""
    if not text:
        fail(flag, "params may not be empty")
    values = {}
    for each in text.split(","):
        name, colon, value = each.partition(":")
        if not colon:
            fail(flag, f"params need to have at least one colon: {each}")
        values[name] = value
    unknown = [f"{name}:{value}" for name, value in values.items() if name not in names.split()]
    if unknown:
        fail(flag, f"unknown param(s): {','.join(unknown)}")
    return Parameters(flag, values)


def quantity(flag: str, text: str, prefix: str = "") -> str:
    """Validate a quantity and return it unchanged.  Raises Problem."""
    try:
        parse(text)
    except ValueError as error:
        fail(flag, f"{prefix}{error}")
    return text


def prefixed(flag: str, text: str) -> tuple[str, str]:
    """Split ``PREFIX/NAME`` or ``NAME``; the prefix may be empty.  Raises Problem."""
    *kind, name = text.split("/")
    if len(kind) > 1:
        fail(flag, f"invalid count {len(kind)} of slashes in prefix/name")
    if not name:
        fail(flag, "name cannot be empty")
    return (kind[0] if kind else ""), name
