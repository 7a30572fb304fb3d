"""A pod's status is written only if a field of it changes."""

import msgspec
import pytest
from lightkube.models.core_v1 import Pod

from corral.node.status.pod_status import differs

RUNNING = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
STATUS = {
    "phase": "Running",
    "hostIP": "192.0.2.1",
    "conditions": [{"type": "Ready", "status": "True"}],
    "containerStatuses": [
        {"name": "compute", "image": "", "imageID": "", "ready": True, "restartCount": 0}
        | {"state": RUNNING}
    ],
}


def pod(status: dict) -> Pod:
    return msgspec.convert({"metadata": {"name": "a"}, "status": status}, Pod)


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"qosClass": "Burstable"},  # of others
        {"conditions": [{"type": "Ready", "status": "True", "reason": "", "message": None}]},
    ],
)
def test_an_unchanged_status_is_not_written(change):
    assert not differs(STATUS, pod(STATUS | change))


@pytest.mark.parametrize(
    "change",
    [
        {"phase": "Pending"},
        {"conditions": []},
        {"conditions": [{"type": "Ready", "status": "True", "reason": "Other"}]},
    ],
)
def test_a_changed_status_is_written(change):
    assert differs(STATUS, pod(STATUS | change))


def test_a_pod_without_a_status_gets_one():
    assert differs(STATUS, msgspec.convert({"metadata": {"name": "a"}}, Pod))
