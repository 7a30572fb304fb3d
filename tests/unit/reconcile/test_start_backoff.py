from tests.unit.controllers.make import make_vmi

from corral.api.object import Key
from corral.reconcile.start_backoff import (
    IMMEDIATE_REPLACEMENTS,
    MAX_SECONDS,
    Backoff,
    ended_early,
)

NOW = 1000.0
KEY = Key("default", "set")


def early():
    return make_vmi(phase="Failed")


def test_a_vmi_that_ran_long_did_not_end_early():
    transitions = [("Running", "2026-01-01T00:00:00Z"), ("Succeeded", "2026-01-01T00:00:31Z")]
    assert not ended_early(make_vmi(phase="Succeeded", transitions=transitions))
    transitions[1] = ("Succeeded", "2026-01-01T00:00:29Z")
    assert ended_early(make_vmi(phase="Succeeded", transitions=transitions))
    assert ended_early(make_vmi(phase="Failed"))
    assert not ended_early(make_vmi(phase="Running"))


def test_a_deleted_vmi_did_not_end_early():
    transitions = [("Running", "2026-01-01T00:00:55Z"), ("Succeeded", "2026-01-01T00:01:00Z")]
    assert ended_early(make_vmi(phase="Succeeded", transitions=transitions))
    assert not ended_early(make_vmi(phase="Succeeded", transitions=transitions, going=True))
    assert not ended_early(make_vmi(phase="Failed", going=True))
    transitions[1] = ("Succeeded", "2026-01-01T00:00:59Z")
    assert ended_early(make_vmi(phase="Succeeded", transitions=transitions, going=True))


def test_after_the_first_few_each_early_end_doubles_the_delay():
    backoff = Backoff()
    waits = []
    for _ in range(IMMEDIATE_REPLACEMENTS + 12):
        backoff.record(KEY, 1, early(), NOW)
        waits.append(backoff.delay(KEY, 1, 1, NOW)[0])
    assert waits[: IMMEDIATE_REPLACEMENTS + 4] == [0, 0, 0, 1, 2, 4, 8]
    assert waits[-1] == MAX_SECONDS


def test_a_vmi_counts_once_however_often_it_is_synced():
    backoff, seen = Backoff(), early()
    for _ in range(20):
        backoff.record(KEY, 1, seen, NOW)
    assert backoff.delay(KEY, 1, 1, NOW) == (0.0, None)


def test_the_last_one_is_named_with_its_reason():
    backoff = Backoff()
    for _ in range(IMMEDIATE_REPLACEMENTS + 1):
        last = early()
        last.status.reason = "OOMKilled"
        backoff.record(KEY, 1, last, NOW)
    _, streak = backoff.delay(KEY, 1, 1, NOW)
    assert (streak.name, streak.reason) == (last.metadata.name, "OOMKilled")


def test_a_new_generation_or_time_resets_the_streak():
    backoff = Backoff()
    for _ in range(IMMEDIATE_REPLACEMENTS + 3):
        backoff.record(KEY, 1, early(), NOW)
    assert backoff.delay(KEY, 1, 1, NOW)[0] == 4
    assert backoff.delay(KEY, 1, 1, NOW + 3)[0] == 1
    assert backoff.delay(KEY, 2, 1, NOW)[0] == 0
    assert backoff.delay(KEY, 1, 1, NOW)[0] == 0


def test_one_early_end_per_replica_is_replaced_at_once():
    backoff = Backoff()
    for _ in range(50):
        backoff.record(KEY, 1, early(), NOW)
    assert backoff.delay(KEY, 1, 50, NOW)[0] == 0
    assert backoff.delay(KEY, 1, 49, NOW)[0] == 1
