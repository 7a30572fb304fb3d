"""Semantic versions (semver.org; Kubernetes' semver library).

A version is a map with one key that names the type; its build metadata is dropped, because versions
that differ in it are equal.
"""

import re
from typing import Any, Final

from corral.api.cel.function import Function, content
from corral.api.formats import parses

TYPE: Final = "kubernetes.Semver"

_NUMBER = r"(0|[1-9][0-9]*)"
_PRERELEASE = r"(?:0|[1-9][0-9]*|[0-9]*[A-Za-z-][0-9A-Za-z-]*)"
_FORM = re.compile(
    rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}(?:-({_PRERELEASE}(?:\.{_PRERELEASE})*))?"
    r"(?:\+[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*)?",
    re.ASCII,
)
_LARGEST = (1 << 64) - 1
_LONGEST = 1024
"""Characters of a version, at most."""


def _version(text: str, normalize: bool = False) -> dict[str, str]:  # noqa: FBT001, FBT002
    form = (
        _FORM.fullmatch(_normalized(text) if normalize else text) if len(text) <= _LONGEST else None
    )
    if form is None or any(int(form[at]) > _LARGEST for at in (1, 2, 3)):
        raise ValueError(f"{text[:_LONGEST]!r} is no semantic version")
    return {TYPE: form[0].partition("+")[0]}


def _normalized(text: str) -> str:
    """Return a version without ``v`` and leading zeros, and with all three numbers."""
    parts = text.removeprefix("v").split(".", 2)
    for index, part in enumerate(parts):
        if len(part) > 1:
            bare = part.lstrip("0")
            parts[index] = bare if bare[:1].isdecimal() else f"0{bare}"
    if len(parts) < 3 and {"+", "-"} & set(parts[-1]):
        raise ValueError("short version cannot contain PreRelease/Build meta data")
    return ".".join([*parts, "0", "0"][:3])


def _number(at: int) -> Any:
    def number(value: dict[str, str]) -> int:
        return int(key(value)[at])

    return number


def key(value: dict[str, str]) -> tuple[Any, ...]:
    """Return the sort key of a version.  Raises ValueError if it is none."""
    form = _FORM.fullmatch(content(value, TYPE, str))
    if form is None:
        raise ValueError("no such overload")
    prerelease = tuple(
        (0, int(part), "") if part.isdecimal() else (1, 0, part)
        for part in (form[4].split(".") if form[4] else ())
    )
    return (int(form[1]), int(form[2]), int(form[3]), not prerelease, prerelease)


VERSIONS: Final = (
    Function("semver", ("string",), "map", _version, is_method=False),
    Function("semver", ("string", "bool"), "map", _version, is_method=False),
    Function("isSemver", ("string",), "bool", parses(_version), is_method=False),
    Function("isSemver", ("string", "bool"), "bool", parses(_version), is_method=False),
    Function("major", ("map",), "int", _number(0)),
    Function("minor", ("map",), "int", _number(1)),
    Function("patch", ("map",), "int", _number(2)),
)
"""Their comparison is that of quantities, too: see ``functions``."""
