"""Conditions: set, found and removed, with the time of their last turn."""

from hypothesis import given, strategies as st

from corral.api.conditions import get_condition, remove_condition, set_condition

THEN, NOW = "2026-01-31T12:00:00Z", "2026-01-31T13:00:00Z"
READY = {"type": "Ready", "status": "False", "reason": "PodNotExists", "lastTransitionTime": THEN}
PAUSED = {"type": "Paused", "status": "True", "lastTransitionTime": THEN}


def test_a_new_condition_is_added_at_the_end():
    assert set_condition([PAUSED], "Ready", "True", now=NOW) == [
        PAUSED,
        {"type": "Ready", "status": "True", "lastTransitionTime": NOW},
    ]
    assert set_condition(None, "Ready", "True", reason="Why", message="because", now=NOW) == [
        {
            "type": "Ready",
            "status": "True",
            "lastTransitionTime": NOW,
            "reason": "Why",
            "message": "because",
        }
    ]


def test_a_changed_status_sets_the_transition_time():
    assert set_condition([READY, PAUSED], "Ready", "True", now=NOW) == [
        {"type": "Ready", "status": "True", "lastTransitionTime": NOW},
        PAUSED,
    ]


def test_an_unchanged_status_keeps_the_transition_time():
    [ready] = set_condition([READY], "Ready", "False", reason="GuestNotRunning", now=NOW)
    assert ready == READY | {"reason": "GuestNotRunning"}


def test_unknown_fields_of_a_condition_are_kept():
    old = READY | {"lastProbeTime": None}
    [ready] = set_condition([old], "Ready", "True", now=NOW)
    assert "lastProbeTime" in ready


def test_arguments_are_not_changed():
    given_list = [dict(READY)]
    set_condition(given_list, "Ready", "True", now=NOW)
    remove_condition(given_list, "Ready")
    assert given_list == [READY]


def test_a_condition_is_found_and_removed():
    assert get_condition([READY, PAUSED], "Paused") is PAUSED
    assert get_condition(None, "Paused") is None
    assert remove_condition([READY, PAUSED], "Ready") == [PAUSED]
    assert remove_condition(None, "Ready") == []


@given(st.lists(st.sampled_from(["True", "False", "Unknown"]), min_size=1, max_size=8))
def test_the_transition_time_is_that_of_the_last_change(statuses):
    conditions = None
    turned = 0
    for moment, status in enumerate(statuses):
        conditions = set_condition(conditions, "Ready", status, now=str(moment))
        if moment == 0 or statuses[moment - 1] != status:
            turned = moment
    assert conditions is not None
    assert conditions == [
        {"type": "Ready", "status": statuses[-1], "lastTransitionTime": str(turned)}
    ]
