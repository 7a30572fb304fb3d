"""What the status of a pool says, and when it is written."""

from datetime import UTC, datetime

import msgspec
import pytest
from tests.unit.controllers.pool.make import pool, vm

from corral.api.errors import Conflict, Forbidden, Invalid
from corral.api.kinds.kubevirt.pool import PoolStatus
from corral.controllers.pool.status import Failure, raise_first, status_update

NOW = datetime(2026, 1, 1, tzinfo=UTC)
FAILURE = Failure("FailedScaleOut", "during scale out", Forbidden("no room"))


def update_of(one, owned=(), failure=None):
    return status_update(one, owned, "pool=web", failure, NOW)


def after(one, owned=(), failure=None):
    """Return the pool with the status that was written."""
    found = update_of(one, owned, failure)
    assert found is not None
    status = {**found.status, "conditions": found.status["conditions"] or []}
    one.status = msgspec.convert(status, PoolStatus)
    return found


def test_terminating_vms_count_as_replicas():
    one = pool()
    owned = [vm(one, 0, ready=True), vm(one, 1), vm(one, 2, going=True, ready=True)]
    status = update_of(one, owned).status
    assert (status["replicas"], status["readyReplicas"]) == (3, 2)
    assert (status["labelSelector"], status["conditions"]) == ("pool=web", None)


def test_an_unchanged_status_is_not_written():
    one = pool()
    owned = [vm(one, 0, ready=True)]
    after(one, owned)
    assert update_of(one, owned) is None
    assert update_of(one, [vm(one, 0)]) is not None


def test_pause_and_resume_are_conditions_and_events():
    one = pool(paused=True)
    found = after(one)
    [condition] = found.status["conditions"]
    assert condition == {
        "type": "ReplicaPaused",
        "status": "True",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
        "reason": "SuccessfulPaused",
        "message": "Pool controller is paused",
    }
    assert found.events == [("Normal", "SuccessfulPaused", "Pool is paused")]
    one.spec.paused = False
    found = after(one)
    assert found.status["conditions"] is None
    assert found.events == [("Normal", "SuccessfulResume", "Pool is unpaused")]


def test_a_failure_keeps_its_first_message():
    one = pool()
    found = after(one, failure=FAILURE)
    assert found.events == [("Warning", "FailedScaleOut", "error during scale out: no room")]
    [condition] = found.status["conditions"]
    assert (condition["type"], condition["reason"]) == ("ReplicaFailure", "FailedScaleOut")
    assert condition["message"] == "error during scale out: no room"
    other = Failure("FailedUpdate", "during VM update", Forbidden("still none"))
    assert update_of(one, failure=other) is None
    found = after(one)
    assert (found.status["conditions"], found.events) == (None, [])


def test_a_stale_cache_is_no_failure():
    raise_first([], "FailedScaleIn", "during scale in")
    with pytest.raises(Conflict):
        raise_first([Conflict("changed")], "FailedScaleIn", "during scale in")
    with pytest.raises(Failure, match="error during scale in: wrong") as caught:
        raise_first([Conflict("changed"), Invalid("wrong")], "FailedScaleIn", "during scale in")
    assert isinstance(caught.value.error, Invalid)
