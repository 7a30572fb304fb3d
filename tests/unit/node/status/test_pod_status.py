"""A pod's status says what its containers have; it is written only if a field of it changes."""

import msgspec
import pytest
from lightkube.models.core_v1 import Pod

from corral.node.state.facts import Facts, State
from corral.node.status.pod_status import differs, pod_status

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


@pytest.mark.parametrize(
    ("resources", "expected"),
    [
        ({}, {"resources": {}}),
        (
            {"requests": {"cpu": "200m"}, "limits": {"memory": "1Gi"}},
            {
                "allocatedResources": {"cpu": "200m"},
                "resources": {"requests": {"cpu": "200m"}, "limits": {"memory": "1Gi"}},
            },
        ),
    ],
)
def test_a_running_container_reports_its_resources_so_that_kubernetes_resizes_it(
    resources, expected
):
    document = {"spec": {"containers": [{"name": "compute", "resources": resources}]}}
    running = Facts(state=State.RUNNING)
    status = pod_status(
        running, msgspec.convert(document, Pod), "192.0.2.1", "2026-01-01T00:00:00Z"
    )
    [compute] = status["containerStatuses"]
    assert {name: compute.get(name) for name in expected} == expected
    assert ("allocatedResources" in compute) is bool(resources)
