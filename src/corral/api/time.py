"""Moments and spans of time in the words of the API.

Nothing here reads the clock: who needs the present moment has a clock, and passes what it says.
"""

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
    # shorter than, told in, and what remains told in
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
_FARTHEST = (24, 60)
"""Hours and minutes that Go takes as a zone's distance at most, though RFC 3339 has less."""


def rfc3339(moment: datetime | float) -> str:
    """A moment as meta/v1 Time writes it: UTC, whole seconds.  Numbers are seconds since 1970."""
    if isinstance(moment, datetime):
        return _text(_utc(moment), "seconds")
    return _second(math.floor(moment))


@lru_cache(maxsize=16)
def _second(moment: int) -> str:
    """The text of a second: many things happen in the same one."""
    return _text(_utc(moment), "seconds")


def rfc3339_micro(moment: datetime | float) -> str:
    """A moment as meta/v1 MicroTime writes it (leases, events): UTC, six digits of a second."""
    return _text(_utc(moment), "microseconds")


def _text(moment: datetime, timespec: str) -> str:
    """A moment of UTC; ``strftime`` would write years below 1000 with fewer digits."""
    return moment.replace(tzinfo=None).isoformat(timespec=timespec) + "Z"


def parse_rfc3339(text: str) -> datetime:
    """The moment that a Time or MicroTime tells; finer than a microsecond is cut off.

    It takes what Go's time.Parse takes for time.RFC3339, which is more than RFC 3339 has: hours of
    one digit, a comma, zones of +24:00 and +00:60.  Raises ValueError.
    """
    if _PLAIN.fullmatch(text):  # as we and most others write it, in a seventh of the time
        return datetime.fromisoformat(text)
    found = _RFC3339.fullmatch(text)
    if found is None:
        raise ValueError(f'"{text[:50]}" is not a time such as 2006-01-02T15:04:05Z')
    year, month, day, hour, minute, second = map(int, found.groups()[:6])
    microseconds = int((found[7] or "")[1:7].ljust(6, "0"))
    try:
        local = datetime(year, month, day, hour, minute, second, microseconds, UTC)
        return local - _distance(found[8], found[9], found[10])
    except (ValueError, OverflowError) as error:
        raise ValueError(f'"{text[:50]}" is no time: {error}') from None


def _distance(sign: str | None, hours: str, minutes: str) -> timedelta:
    """How far a zone is east of UTC."""
    if sign is None:
        return timedelta()
    if int(hours) > _FARTHEST[0] or int(minutes) > _FARTHEST[1]:
        raise ValueError("its zone is too far from UTC")
    distance = timedelta(hours=int(hours), minutes=int(minutes))
    return distance if sign == "+" else -distance


def parse_duration(text: str) -> float:
    """Seconds of a span as Go writes it (metav1.Duration): ``5m0s``, ``1.5h``.

    Raises ValueError.
    """
    parts = _GO_PART.findall(text)
    if not parts or "".join(f"{number}{unit}" for number, unit in parts) != text:
        raise ValueError(f"{text[:50]!r} is no duration like 30s or 5m0s")
    return sum(float(number) * _GO_UNITS[unit] for number, unit in parts)


def go_duration(seconds: float) -> str:
    """A span as Go writes it (metav1.Duration), to the millisecond: ``15.003s``, ``1m0s``."""
    minutes, rest = divmod(round(seconds * 1000), 60_000)
    hours, minutes = divmod(minutes, 60)
    text = f"{rest / 1000:.3f}".rstrip("0").rstrip(".") + "s"
    if hours or minutes:
        text = f"{minutes}m{text}"
    return f"{hours}h{text}" if hours else text


def human_duration(seconds: float) -> str:
    """A span as kubectl prints ages: two units while the span is short, then one: ``2m3s``, ``8d``.

    Clocks of two machines may differ by a second; a span further below zero is ``<invalid>``.
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
