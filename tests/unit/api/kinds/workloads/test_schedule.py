"""Set times: which are understood, and what is said of the others."""

import pytest
from hypothesis import given, strategies as st

from corral.api.kinds.workloads.schedule import schedule_fault


@pytest.mark.parametrize(
    "schedule",
    [
        "* * * * *", "*/5 8-18 * * mon-fri", "0 0 1 JAN ?", "0,15,30 */2 1-31/3 1-12 0-6",
        "@daily", "@every 1h30m", "@every 1.5h",
    ],
)  # fmt: skip
def test_valid_schedules_are_accepted(schedule):
    assert schedule_fault(schedule) == ""


@pytest.mark.parametrize(
    ("schedule", "fault"),
    [
        ("", "expected exactly 5 fields, found 0: []"),
        ("* * * *", "expected exactly 5 fields, found 4: [* * * *]"),
        ("60 * * * *", "end of range (60) above maximum (59): 60"),
        ("* * 0 * *", "beginning of range (0) below minimum (1): 0"),
        ("5-3 * * * *", "beginning of range (5) beyond end of range (3): 5-3"),
        ("1-2-3 * * * *", "too many hyphens: 1-2-3"),
        ("x * * * *", "failed to parse int from x: x"),
        ("*/0 * * * *", "step of range should be a positive number: */0"),
        ("@often", "unrecognized descriptor: @often"),
        ("@every day", "unrecognized descriptor: @every day"),
    ],
)
def test_invalid_schedules_are_rejected(schedule, fault):
    assert schedule_fault(schedule) == fault


@given(st.text() | st.text(alphabet="0123456789*/-,? @jan", max_size=30))
def test_any_text_is_validated(schedule):
    assert isinstance(schedule_fault(schedule), str)
