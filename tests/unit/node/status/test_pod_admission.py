"""Which pods a node runs."""

import msgspec
import pytest
from lightkube.models.core_v1 import Pod

from corral.node.status.pod_admission import no_room

NONE = {"MemoryPressure": False, "DiskPressure": False, "PIDPressure": False}


def pod(priority=None):
    spec = {"containers": [], "priority": priority}
    return msgspec.convert({"metadata": {"name": "p"}, "spec": spec}, Pod)


def test_without_pressure_every_pod_may_run():
    assert no_room(pod(), NONE) is None


def test_a_pod_bound_before_pressure_is_rejected():
    refused = no_room(pod(1000), NONE | {"DiskPressure": True, "PIDPressure": True})
    assert refused is not None
    assert refused.reason == "Evicted"
    assert refused.message == "The node had condition: [DiskPressure, PIDPressure]. "


@pytest.mark.parametrize("priority", [2_000_000_000, 2_000_001_000])
def test_critical_pods_are_admitted(priority):
    assert no_room(pod(priority), NONE | {"MemoryPressure": True}) is None
