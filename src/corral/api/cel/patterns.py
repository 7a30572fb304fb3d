"""``find`` and ``findAll``: what of a text fits a regular expression, as RE2 finds it.

The library has functions of its own for that, ``regex.extract`` and ``regex.extractAll``, which
give what is in a pattern's group; so the whole of a pattern is made its only group.  Other than
Go's, ``findAll`` leaves out fits that are empty.
"""

import re
from collections.abc import Callable
from typing import Any

from corral.api.cel.function import Function

_PARTS = re.compile(
    r"""\\Q.*?(?:\\E|$)                                  # quoted
    | \\.                                                # escaped
    | \[\^?\]?(?:\[:\^?[a-z]+:\]|\\.|[^\]\\])*\]         # a class of letters
    | (?P<group>\((?:\?P?<[^>]*>|(?!\?)))                # where a group begins that is kept""",
    re.VERBOSE | re.DOTALL,
)


def _grouped(pattern: str) -> str:
    """A pattern of which the whole is the only group."""
    return f"({_PARTS.sub(lambda part: '(?:' if part['group'] else part[0], pattern)})"


Extract = Callable[[str, str], Any]
"""From a text and a pattern with one group to what fits that."""


def finders(first: Extract, every: Extract) -> tuple[Function, ...]:
    """The functions, by those of the library."""

    def find(text: str, pattern: str) -> str:
        return str(first(text, _grouped(pattern)))

    def find_all(text: str, pattern: str, most: int = -1) -> list[str]:
        found: list[str] = every(text, _grouped(pattern))
        return found if most < 0 else found[:most]

    return (
        Function("find", ("string", "string"), "string", find),
        Function("findAll", ("string", "string"), "strings", find_all),
        Function("findAll", ("string", "string", "int"), "strings", find_all),
    )
