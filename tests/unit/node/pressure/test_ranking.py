"""Who has to go first, and what is said of it."""

import msgspec
import pytest
from lightkube.models.core_v1 import Pod

from corral.node.pressure.ranking import Candidate, message, ranked
from corral.node.pressure.thresholds import Observation, Shortage, Threshold

MEBIBYTE = 2**20
MEMORY, DISK = "memory", "ephemeral-storage"


def candidate(name, usage, *, priority=0, request=100):
    """Usage and request are in MiB."""
    resources = {"requests": {"memory": f"{request}Mi"}}
    container = {"name": "compute", "image": "i", "resources": resources}
    document = {
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"containers": [container], "priority": priority},
    }
    used = None if usage is None else int(usage * MEBIBYTE)
    return Candidate(msgspec.convert(document, Pod), used)


def names(candidates, resource=MEMORY):
    return [each.key.name for each in ranked(candidates, resource)]


@pytest.mark.parametrize(
    ("candidates", "expected"),
    [
        ([candidate("within", 90), candidate("over", 110)], ["over", "within"]),
        ([candidate("within", 90, priority=-1), candidate("over", 110)], ["over", "within"]),
        ([candidate("high", 300, priority=9), candidate("low", 110)], ["low", "high"]),
        ([candidate("some", 110), candidate("most", 150)], ["most", "some"]),
        ([candidate("large", 150), candidate("exceeds", 110, request=10)], ["exceeds", "large"]),
        ([candidate("known", 110), candidate("unknown", None)], ["unknown", "known"]),
        ([candidate("critical", 900, priority=2_000_000_000), candidate("any", 1)], ["any"]),
    ],
)
def test_the_order_of_evictions_is_a_kubelets(candidates, expected):
    assert names(candidates) == expected
    assert names(candidates[::-1]) == expected


def test_pods_without_disk_usage_are_not_evicted():
    both = [candidate("claims", 0.1), candidate("overlay", 5)]
    assert names(both, DISK) == ["overlay"]


def test_the_message_names_the_container_that_exceeds_its_request():
    short = Shortage(Threshold("memory.available", 100 * MEBIBYTE), Observation(MEBIBYTE, 1 << 30))
    text = message(candidate("a", 150), short)
    assert text == (
        "The node was low on resource: memory. Threshold quantity: 100Mi, available: 1Mi. "
        "Container compute was using 150Mi, request is 100Mi, has larger consumption of memory. "
    )
    assert message(candidate("a", 50), short).endswith("available: 1Mi. ")
