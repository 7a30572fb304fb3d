"""Times and durations in the formats of the API.  Callers pass the present: no clock is read."""

import math
import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache

MINUTE = 60
HOUR = 60 * MINUTE
DAY = 24 * HOUR
YEAR = 365 * DAY

_UNITS = {"s": 1, "m": MINUTE, "h": HOUR, "d": DAY, "y": YEAR}

_SPANS = (
    # shorter than, unit, unit of the remainder
    (2 * MINUTE, "s", ""),
    (10 * MINUTE, "m", "s"),
    (3 * HOUR, "m", ""),
    (8 * HOUR, "h", "m"),
    (48 * HOUR, "h", ""),
    (8 * DAY, "d", "h"),
    (2 * YEAR, "d", ""),
    (8 * YEAR, "y", "d"),
)

_GO_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_GO_PART = re.compile(r"([0-9]{1,12}(?:\.[0-9]{0,9})?)(ns|us|µs|ms|s|m|h)")
_RFC3339 = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)T(\d\d?):(\d\d):(\d\d)([.,]\d+)?(?:Z|([+-])(\d\d):(\d\d))", re.ASCII
)
_PLAIN = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{6})?Z", re.ASCII)
_MAX_OFFSET = (24, 60)
"""The largest offset of a zone that Go accepts, in hours and minutes; that of RFC 3339 is less."""


def rfc3339(moment: datetime | float) -> str:
    """Format a meta/v1 Time: UTC, whole seconds.  Numbers are seconds since 1970."""
    if isinstance(moment, datetime):
        return _second(round(moment.timestamp() - moment.microsecond / 1e6))
    return _second(math.floor(moment))


@lru_cache(maxsize=64)
def _second(moment: int) -> str:
    """Format a second, cached, because many things happen in the same one."""
    return _text(_utc(moment), "seconds")


def rfc3339_micro(moment: datetime | float) -> str:
    """Format a meta/v1 MicroTime (leases, events): UTC, microseconds."""
    return _text(_utc(moment), "microseconds")


def _text(moment: datetime, timespec: str) -> str:
    """Format a moment of UTC; ``strftime`` writes years below 1000 with fewer digits."""
    return moment.replace(tzinfo=None).isoformat(timespec=timespec) + "Z"


def parse_rfc3339(text: str) -> datetime:
    """Parse a Time or MicroTime, truncated to microseconds.  Raises ValueError.

    Accepts what Go's time.Parse accepts for time.RFC3339, which is more than RFC 3339 allows: hours
    of one digit, a comma, zones of +24:00 and +00:60.
    """
    if _PLAIN.fullmatch(text):  # the usual format, in a seventh of the time
        return datetime.fromisoformat(text)
    found = _RFC3339.fullmatch(text)
    if found is None:
        raise ValueError(f'"{text[:50]}" is not a time such as 2006-01-02T15:04:05Z')
    year, month, day, hour, minute, second = map(int, found.groups()[:6])
    microseconds = int((found[7] or "")[1:7].ljust(6, "0"))
    try:
        local = datetime(year, month, day, hour, minute, second, microseconds, UTC)
        return local - _offset(found[8], found[9], found[10])
    except (ValueError, OverflowError) as error:
        raise ValueError(f'"{text[:50]}" is no time: {error}') from None


def _offset(sign: str | None, hours: str, minutes: str) -> timedelta:
    """Return the offset of a zone from UTC."""
    if sign is None:
        return timedelta()
    if int(hours) > _MAX_OFFSET[0] or int(minutes) > _MAX_OFFSET[1]:
        raise ValueError("its zone is too far from UTC")
    offset = timedelta(hours=int(hours), minutes=int(minutes))
    return offset if sign == "+" else -offset


def parse_duration(text: str) -> float:
    """Parse a metav1.Duration into seconds: ``5m0s``, ``1.5h``.  Raises ValueError."""
    parts = _GO_PART.findall(text)
    if not parts or "".join(f"{number}{unit}" for number, unit in parts) != text:
        raise ValueError(f"{text[:50]!r} is no duration like 30s or 5m0s")
    return sum(float(number) * _GO_UNITS[unit] for number, unit in parts)


def go_duration(seconds: float) -> str:
    """Format a metav1.Duration, to the millisecond: ``15.003s``, ``1m0s``."""
    minutes, rest = divmod(round(seconds * 1000), 60_000)
    hours, minutes = divmod(minutes, 60)
    text = f"{rest / 1000:.3f}".rstrip("0").rstrip(".") + "s"
    if hours or minutes:
        text = f"{minutes}m{text}"
    return f"{hours}h{text}" if hours else text


def human_duration(seconds: float) -> str:
    """Format a duration as kubectl prints ages: ``2m3s``, ``8d``.

    Down to -1 s it is ``0s``, because clocks may differ; below it is ``<invalid>``.
    """
    whole = int(seconds)
    if whole < -1:
        return "<invalid>"
    whole = max(whole, 0)
    unit, rest_unit = "y", ""
    for limit, short, finer in _SPANS:
        if whole < limit:
            unit, rest_unit = short, finer
            break
    count, rest = divmod(whole, _UNITS[unit])
    text = f"{count}{unit}"
    if rest_unit and (remaining := rest // _UNITS[rest_unit]):
        text += f"{remaining}{rest_unit}"
    return text


def _utc(moment: datetime | float) -> datetime:
    if isinstance(moment, datetime):
        return moment.astimezone(UTC)
    return datetime.fromtimestamp(moment, UTC)
