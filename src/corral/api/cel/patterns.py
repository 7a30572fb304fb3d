"""``find`` and ``findAll``: matches of a regular expression in a text, by RE2.

They are made of the library's ``regex.extract`` and ``regex.extractAll``, which return the content
of a pattern's group; so the whole pattern becomes its only group.  Unlike Go's, ``findAll`` omits
empty matches.
"""

import re
from collections.abc import Callable
from typing import Any

from corral.api.cel.function import Function

_PARTS = re.compile(
    r"""\\Q.*?(?:\\E|$)                                  # quoted
    | \\.                                                # escaped
    | \[\^?\]?(?:\[:\^?[a-z]+:\]|\\.|[^\]\\])*\]         # a class of characters
    | (?P<group>\((?:\?P?<[^>]*>|(?!\?)))                # the begin of a capturing group""",
    re.VERBOSE | re.DOTALL,
)


def _grouped(pattern: str) -> str:
    """Return a pattern whose only group is the whole."""
    return f"({_PARTS.sub(lambda part: '(?:' if part['group'] else part[0], pattern)})"


Extract = Callable[[str, str], Any]
"""Returns what matches the one group of a pattern in a text: ``(text, pattern)``."""


def finders(first: Extract, every: Extract) -> tuple[Function, ...]:
    """Return ``find`` and ``findAll``, made of the library's functions."""

    def find(text: str, pattern: str) -> str:
        return str(first(text, _grouped(pattern)))

    def find_all(text: str, pattern: str, limit: int = -1) -> list[str]:
        found: list[str] = every(text, _grouped(pattern))
        return found if limit < 0 else found[:limit]

    return (
        Function("find", ("string", "string"), "string", find),
        Function("findAll", ("string", "string"), "strings", find_all),
        Function("findAll", ("string", "string", "int"), "strings", find_all),
    )
