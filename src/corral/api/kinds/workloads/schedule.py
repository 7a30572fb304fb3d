"""Validation of cron schedules: ``*/5 8-18 * * mon-fri`` or ``@daily``."""

import re
from typing import NamedTuple

_WORDS = ("@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly")
_EVERY = re.compile(r"@every (\d+(\.\d+)?(ns|us|µs|ms|s|m|h))+", re.ASCII)
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_NUMBER = re.compile(r"[0-9]{1,9}", re.ASCII)
_LONGEST = 1000


class _Bounds(NamedTuple):
    """The bounds of a field of a schedule; names stand for numbers from ``least`` on."""

    least: int
    most: int
    names: tuple[str, ...] = ()


_FIELDS = (
    _Bounds(0, 59),
    _Bounds(0, 23),
    _Bounds(1, 31),
    _Bounds(1, 12, _MONTHS),
    _Bounds(0, 6, _DAYS),
)
"""Minute, hour, day, month and day of the week."""


def schedule_fault(schedule: str) -> str:
    """Return what is wrong with a schedule; empty if it is valid."""
    try:
        _check(schedule)
    except ValueError as error:
        return str(error)
    return ""


def _check(schedule: str) -> None:
    if len(schedule) > _LONGEST:
        raise ValueError(f"a schedule may have {_LONGEST} characters")
    if schedule.startswith("@"):
        if schedule not in _WORDS and not _EVERY.fullmatch(schedule):
            raise ValueError(f"unrecognized descriptor: {schedule}")
        return
    fields = schedule.split()
    if len(fields) != len(_FIELDS):
        joined = " ".join(fields)
        raise ValueError(f"expected exactly {len(_FIELDS)} fields, found {len(fields)}: [{joined}]")
    for field, bounds in zip(fields, _FIELDS, strict=True):
        for piece in field.split(","):
            _check_range(piece, bounds)


def _check_range(text: str, bounds: _Bounds) -> None:
    """Check a range: ``*``, ``3``, ``mon-fri``, ``*/5`` or ``1-10/2``."""
    whole, slash, step = text.partition("/")
    if slash and _number(step, text) == 0:
        raise ValueError(f"step of range should be a positive number: {text}")
    if whole in ("*", "?"):
        return
    ends = whole.split("-")
    if len(ends) > 2:
        raise ValueError(f"too many hyphens: {text}")
    first, *_, last = [_end(end, text, bounds) for end in (ends[0], ends[-1])]
    if first < bounds.least:
        raise ValueError(f"beginning of range ({first}) below minimum ({bounds.least}): {text}")
    if last > bounds.most:
        raise ValueError(f"end of range ({last}) above maximum ({bounds.most}): {text}")
    if first > last:
        raise ValueError(f"beginning of range ({first}) beyond end of range ({last}): {text}")


def _end(end: str, text: str, bounds: _Bounds) -> int:
    if end.lower() in bounds.names:
        return bounds.least + bounds.names.index(end.lower())
    return _number(end, text)


def _number(digits: str, text: str) -> int:
    if not _NUMBER.fullmatch(digits):
        raise ValueError(f"failed to parse int from {digits}: {text}")
    return int(digits)
