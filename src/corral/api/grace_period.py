"""Bounds of grace periods, in a spec or in delete options."""

from typing import Final

LONGEST_SECONDS: Final = 2**31 - 1
"""68 years.  The present plus twice as much can still be formatted."""


def fault(seconds: int | None) -> str:
    """Return why a grace period is invalid; "" if it is valid or None."""
    if seconds is not None and seconds < 0:
        return "must be greater than or equal to 0"
    if seconds is not None and seconds > LONGEST_SECONDS:
        return f"must be less than or equal to {LONGEST_SECONDS}"
    return ""
