"""What budgets allow, from the pods that there are and those that there should be."""

from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from lightkube.models.core_v1 import Pod
from lightkube.models.policy_v1 import PodDisruptionBudget as Budget

from corral.cluster.disruption import allowed_disruptions

NOW = datetime(2026, 1, 1, tzinfo=UTC)
STAMP = "2026-01-01T00:00:00Z"


def pods(ready: int, *, unready: int = 0, going: int = 0) -> list[Pod]:
    """Some pods that are ready, others that are not, and others that are ready but go."""
    documents = []
    for number in range(ready + unready + going):
        metadata = {"name": f"pod{number}"}
        if number >= ready + unready:
            metadata["deletionTimestamp"] = STAMP
        word = "False" if ready <= number < ready + unready else "True"
        status = {"conditions": [{"type": "Ready", "status": word}]}
        documents.append({"metadata": metadata, "status": status})
    return [msgspec.convert(document, Pod, strict=False) for document in documents]


def budget(status=None, **spec) -> Budget:
    document = {"metadata": {"name": "web", "generation": 3}, "spec": spec}
    if status is not None:
        document["status"] = status
    return msgspec.convert(document, Budget, strict=False)


def reckon(of: Budget, present: list[Pod], expected: int, now=NOW) -> dict:
    going = allowed_disruptions.unconfirmed(of, present, now)
    return allowed_disruptions.status(of, present, expected, going, now)


@pytest.mark.parametrize(
    ("spec", "present", "expected", "desired", "allowed"),
    [
        # https://kubernetes.io/docs/tasks/run-application/configure-pdb/
        ({"minAvailable": "50%"}, pods(7), 7, 4, 3),
        ({"maxUnavailable": "30%"}, pods(10), 10, 7, 3),
        ({"maxUnavailable": 5}, pods(8, unready=2), 10, 5, 3),
        # "50%" of seven may be missing: four, rounded up
        ({"maxUnavailable": "50%"}, pods(7), 7, 3, 4),
        ({"minAvailable": 3}, pods(4), 4, 3, 1),
        ({"minAvailable": 3}, pods(3, going=1), 4, 3, 0),
        ({"minAvailable": 0}, pods(2), 2, 0, 2),
        ({"maxUnavailable": 0}, pods(4), 4, 4, 0),
        ({"maxUnavailable": 1}, pods(2, unready=2), 4, 3, 0),
        ({"maxUnavailable": 9}, pods(4), 4, 0, 4),
        # more than desired, while a set shrinks
        ({"maxUnavailable": 1}, pods(5), 3, 2, 3),
        # none yet: the first ones must not be let go of before they are counted
        ({"minAvailable": 0}, [], 0, 0, 0),
        ({}, pods(2), 2, 0, 2),
    ],
)
def test_allowed_disruptions(spec, present, expected, desired, allowed):
    status = reckon(budget(**spec), present, expected)
    assert (status["desiredHealthy"], status["disruptionsAllowed"]) == (desired, allowed)
    assert (status["expectedPods"], status["observedGeneration"]) == (expected, 3)
    assert status["conditions"][0]["status"] == ("True" if allowed else "False")


def test_evicted_pods_do_not_count_as_healthy():
    recorded = {"disruptedPods": {"pod0": STAMP, "pod3": STAMP, "gone": STAMP}}
    of = budget(recorded, maxUnavailable=1)
    present = pods(3, going=1)
    status = reckon(of, present, 4)
    assert status["currentHealthy"] == 2
    assert status["disruptedPods"] == {"pod0": STAMP}
    going = allowed_disruptions.unconfirmed(of, present, NOW)
    assert (going.overdue, going.next_seconds) == ([], 120)
    late = allowed_disruptions.unconfirmed(of, present, NOW + timedelta(seconds=120))
    assert [pod.metadata.name for pod in late.overdue] == ["pod0"]
    assert late.next_seconds is None
    assert reckon(of, present, 4, NOW + timedelta(seconds=120))["currentHealthy"] == 3


def test_only_changed_fields_are_written():
    of = budget({"disruptedPods": {"gone": STAMP}}, maxUnavailable=1)
    status = reckon(of, pods(4), 4)
    written = allowed_disruptions.patch(of, status)
    assert written is not None
    assert written["disruptedPods"] is None
    after = budget(status, maxUnavailable=1)
    assert (
        allowed_disruptions.patch(after, reckon(after, pods(4), 4, NOW + timedelta(hours=1)))
        is None
    )
    of = budget({"disruptedPods": {"gone": STAMP, "pod1": STAMP}}, maxUnavailable=1)
    written = allowed_disruptions.patch(of, reckon(of, pods(4), 4))
    assert written is not None
    assert written["disruptedPods"] == {"gone": None, "pod1": STAMP}


def test_a_budget_that_cannot_be_computed_allows_nothing():
    before = reckon(budget(maxUnavailable=1), pods(4), 4)
    status = allowed_disruptions.failed(budget(before, maxUnavailable=1), "nobody knows", NOW)
    assert (status["disruptionsAllowed"], status["currentHealthy"]) == (0, 4)
    (condition,) = status["conditions"]
    assert (condition["reason"], condition["message"]) == ("SyncFailed", "nobody knows")
