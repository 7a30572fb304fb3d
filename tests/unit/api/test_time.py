from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given, strategies as st

from corral.api.time import (
    go_duration,
    human_duration,
    parse_duration,
    parse_rfc3339,
    rfc3339,
    rfc3339_micro,
)

MINUTE, HOUR, DAY = 60, 3600, 86400


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-2, "<invalid>"),
        (-1.5, "0s"),
        (-1, "0s"),
        (0, "0s"),
        (5.9, "5s"),
        (119, "119s"),
        (120, "2m"),
        (123, "2m3s"),
        (9 * MINUTE + 59, "9m59s"),
        (10 * MINUTE + 59, "10m"),
        (3 * HOUR - 1, "179m"),
        (3 * HOUR, "3h"),
        (3 * HOUR + 5 * MINUTE, "3h5m"),
        (8 * HOUR + 59 * MINUTE, "8h"),
        (48 * HOUR - 1, "47h"),
        (48 * HOUR, "2d"),
        (2 * DAY + 3 * HOUR, "2d3h"),
        (8 * DAY + 5 * HOUR, "8d"),
        (730 * DAY - 1, "729d"),
        (730 * DAY, "2y"),
        (750 * DAY, "2y20d"),
        (8 * 365 * DAY + DAY, "8y"),
    ],
)
def test_ages_have_the_format_of_kubectl(seconds, text):
    assert human_duration(seconds) == text


def test_times_are_utc_in_whole_seconds():
    moment = datetime(2024, 1, 31, 14, 0, 0, 999999, timezone(timedelta(hours=2)))
    assert rfc3339(moment) == "2024-01-31T12:00:00Z"
    assert rfc3339_micro(moment) == "2024-01-31T12:00:00.999999Z"
    assert rfc3339(moment.timestamp()) == "2024-01-31T12:00:00Z"


@pytest.mark.parametrize(
    ("moment", "text"),
    [
        (datetime.min.replace(tzinfo=UTC), "0001-01-01T00:00:00Z"),
        (datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC), "1969-12-31T23:59:59Z"),
        (datetime.max.replace(tzinfo=UTC), "9999-12-31T23:59:59Z"),
    ],
)
def test_fractions_of_seconds_are_truncated_in_any_year(moment, text):
    """A float of the year 9999 has no microseconds left."""
    assert rfc3339(moment) == text


@given(st.floats(0, 4e9).map(lambda seconds: datetime.fromtimestamp(seconds, UTC)))
def test_times_round_trip(moment):
    assert parse_rfc3339(rfc3339_micro(moment)) == moment
    assert parse_rfc3339(rfc3339(moment)) == moment.replace(microsecond=0)


def test_other_zones_and_nanoseconds_are_parsed():
    assert rfc3339(parse_rfc3339("2024-01-31T14:00:00.123456789+02:00")) == "2024-01-31T12:00:00Z"


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2024-01-31T00:00:00+00:60", "2024-01-30T23:00:00.000000Z"),
        ("2024-01-31T00:00:00-24:00", "2024-02-01T00:00:00.000000Z"),
        ("2024-01-31T1:00:00Z", "2024-01-31T01:00:00.000000Z"),
        ("2024-01-31T00:00:00,5Z", "2024-01-31T00:00:00.500000Z"),
        ("2024-01-31T00:00:00.12345678901234Z", "2024-01-31T00:00:00.123456Z"),
        ("0001-01-01T00:00:00Z", "0001-01-01T00:00:00.000000Z"),
    ],
)
def test_times_are_parsed_as_in_go(text, moment):
    assert rfc3339_micro(parse_rfc3339(text)) == moment


@pytest.mark.parametrize(
    "text",
    [
        "",
        "2024-01-31",
        "2024-01-31T00:00:00+00:61",
        "2024-01-31T00:00:00+25:00",
        "2024-01-31T23:59:60Z",
        "2024-01-31T24:00:00Z",
        "2024-01-31T00:00:00.Z",
        "2024-01-31t00:00:00z",
        "2024-02-30T00:00:00+01:00",
        "2024-W05-3T00:00:00Z",
        "2024-13-31T00:00:00Z",
        "now",
        "2024-01-31T12:00:00",
        "0001-01-01T00:00:00+01:00",
        "9999-12-31T23:59:59-01:00",
    ],
)
def test_an_invalid_time_is_rejected(text):
    with pytest.raises(ValueError, match=r"."):
        parse_rfc3339(text)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        *((15.0, "15s"), (15.0034, "15.003s"), (0.25, "0.25s"), (59.9999, "1m0s")),
        *((75.5, "1m15.5s"), (3600, "1h0m0s"), (0, "0s")),
    ],
)
def test_durations_have_the_format_of_go(seconds, text):
    assert go_duration(seconds) == text
    assert parse_duration(text) == pytest.approx(seconds, abs=0.001)
