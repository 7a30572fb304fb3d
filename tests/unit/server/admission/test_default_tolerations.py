"""Tolerations of pods for nodes that fail."""

import pytest

from corral.api.kinds.core.node_taints import NOT_READY, UNREACHABLE
from corral.server.admission.default_tolerations import admit_pod


def admitted(*tolerations):
    pod = {"spec": {"tolerations": list(tolerations)} if tolerations else {}}
    admit_pod(pod, None)
    return pod["spec"]["tolerations"]


def test_pods_tolerate_failed_nodes_for_five_minutes():
    assert admitted() == [
        {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
        for key in (NOT_READY, UNREACHABLE)
    ]


def test_existing_tolerations_stay():
    own = {"key": UNREACHABLE, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5}
    assert [each["key"] for each in admitted(own)] == [UNREACHABLE, NOT_READY]
    other = {"key": UNREACHABLE, "operator": "Exists", "effect": "NoSchedule"}
    assert len(admitted(other)) == 3


@pytest.mark.parametrize(
    "own", [{"operator": "Exists"}, {"operator": "Exists", "effect": "NoExecute"}]
)
def test_a_toleration_of_everything_needs_no_others(own):
    assert admitted(own) == [own]


def test_existing_pods_get_no_tolerations():
    pod = {"spec": {}}
    admit_pod(pod, pod)
    assert pod == {"spec": {}}
