"""Bounds of the grace that is given to what shall end: by its spec, or by who deletes it."""

from typing import Final

LONGEST_SECONDS: Final = 2**31 - 1
"""68 years.  Twice as much added to the present is still a moment that can be told."""


def fault(seconds: int | None) -> str:
    """What a grace must be and is not; empty for one that is right, or not said at all."""
    if seconds is not None and seconds < 0:
        return "must be greater than or equal to 0"
    if seconds is not None and seconds > LONGEST_SECONDS:
        return f"must be less than or equal to {LONGEST_SECONDS}"
    return ""
