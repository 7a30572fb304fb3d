"""Flags that hold several parameters, as virtctl writes them: ``--flag name:value,name:value``."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NoReturn

from corral.api.quantity import parse
from corral.cli.errors import Problem


def wrong(flag: str, why: str) -> NoReturn:
    """Refuse a flag.  Raises Problem, in virtctl's words."""
    raise Problem(f'failed to parse "--{flag}" flag: {why}')


@dataclass(frozen=True, slots=True)
class Parameters:
    """The parameters of one flag; those that are asked for are known, others were refused."""

    flag: str
    values: Mapping[str, str]

    def get(self, name: str) -> str:
        """A parameter; empty where it is not there."""
        return self.values.get(name, "")

    def need(self, name: str) -> str:
        """A parameter that must be there.  Raises Problem."""
        return self.get(name) or wrong(self.flag, f"{name} must be specified")

    def number(self, name: str) -> int | None:
        """A parameter that counts.  Raises Problem."""
        text = self.get(name)
        if not text:
            return None
        if not text.isascii() or not text.isdigit():
            wrong(self.flag, f'failed to parse param "{name}": {text!r} is not a whole number')
        return int(text)

    def quantity(self, name: str) -> str:
        """A parameter that is an amount; empty where it is not there.  Raises Problem."""
        if text := self.get(name):
            quantity(self.flag, text, f'failed to parse param "{name}": ')
        return text

    def several(self, name: str) -> list[str]:
        """A parameter that holds several texts, with a semicolon between."""
        return self.get(name).split(";") if self.get(name) else []


def parameters(flag: str, text: str, known: str) -> Parameters:
    """Read a flag; ``known`` are the names of its parameters.  Raises Problem."""
    if not text:
        wrong(flag, "params may not be empty")
    values = {}
    for each in text.split(","):
        name, colon, value = each.partition(":")
        if not colon:
            wrong(flag, f"params need to have at least one colon: {each}")
        values[name] = value
    strangers = [f"{name}:{value}" for name, value in values.items() if name not in known.split()]
    if strangers:
        wrong(flag, f"unknown param(s): {','.join(strangers)}")
    return Parameters(flag, values)


def quantity(flag: str, text: str, where: str = "") -> str:
    """An amount, as it was written.  Raises Problem."""
    try:
        parse(text)
    except ValueError as error:
        wrong(flag, f"{where}{error}")
    return text


def prefixed(flag: str, text: str) -> tuple[str, str]:
    """``KIND/NAME`` or ``NAME``: the kind, which may be empty, and the name.  Raises Problem."""
    *kind, name = text.split("/")
    if len(kind) > 1:
        wrong(flag, f"invalid count {len(kind)} of slashes in prefix/name")
    if not name:
        wrong(flag, "name cannot be empty")
    return (kind[0] if kind else ""), name
