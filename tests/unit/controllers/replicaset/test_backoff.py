from tests.unit.controllers.make import machine

from corral.api.object import Key
from corral.controllers.replicaset.backoff import FREE, LONGEST_SECONDS, Backoff, ended_young

NOW = 1000.0
KEY = Key("default", "set")


def young():
    return machine(phase="Failed")


def test_a_machine_that_ran_long_did_not_end_young():
    transitions = [("Running", "2026-01-01T00:00:00Z"), ("Succeeded", "2026-01-01T00:00:31Z")]
    assert not ended_young(machine(phase="Succeeded", transitions=transitions))
    transitions[1] = ("Succeeded", "2026-01-01T00:00:29Z")
    assert ended_young(machine(phase="Succeeded", transitions=transitions))
    assert ended_young(machine(phase="Failed"))
    assert not ended_young(machine(phase="Running"))


def test_who_was_deleted_did_not_end_by_itself():
    transitions = [("Running", "2026-01-01T00:00:55Z"), ("Succeeded", "2026-01-01T00:01:00Z")]
    assert ended_young(machine(phase="Succeeded", transitions=transitions))
    assert not ended_young(machine(phase="Succeeded", transitions=transitions, going=True))
    assert not ended_young(machine(phase="Failed", going=True))
    transitions[1] = ("Succeeded", "2026-01-01T00:00:59Z")
    assert ended_young(machine(phase="Succeeded", transitions=transitions, going=True))


def test_the_first_few_are_free_and_then_each_doubles_the_wait():
    backoff = Backoff()
    waits = []
    for _ in range(FREE + 12):
        backoff.note(KEY, 1, young(), NOW)
        waits.append(backoff.hold(KEY, 1, 1, NOW)[0])
    assert waits[: FREE + 4] == [0, 0, 0, 1, 2, 4, 8]
    assert waits[-1] == LONGEST_SECONDS


def test_a_machine_counts_once_however_often_it_is_seen():
    backoff, seen = Backoff(), young()
    for _ in range(20):
        backoff.note(KEY, 1, seen, NOW)
    assert backoff.hold(KEY, 1, 1, NOW) == (0.0, None)


def test_the_last_one_is_named_with_its_reason():
    backoff = Backoff()
    for _ in range(FREE + 1):
        last = young()
        last.status.reason = "OOMKilled"
        backoff.note(KEY, 1, last, NOW)
    _, streak = backoff.hold(KEY, 1, 1, NOW)
    assert (streak.name, streak.why) == (last.metadata.name, "OOMKilled")


def test_a_change_of_the_set_and_time_forgive():
    backoff = Backoff()
    for _ in range(FREE + 3):
        backoff.note(KEY, 1, young(), NOW)
    assert backoff.hold(KEY, 1, 1, NOW)[0] == 4
    assert backoff.hold(KEY, 1, 1, NOW + 3)[0] == 1
    assert backoff.hold(KEY, 2, 1, NOW)[0] == 0
    assert backoff.hold(KEY, 1, 1, NOW)[0] == 0


def test_every_replica_may_end_young_once():
    backoff = Backoff()
    for _ in range(50):
        backoff.note(KEY, 1, young(), NOW)
    assert backoff.hold(KEY, 1, 50, NOW)[0] == 0
    assert backoff.hold(KEY, 1, 49, NOW)[0] == 1
