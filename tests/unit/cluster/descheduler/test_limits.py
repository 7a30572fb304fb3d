import pytest
from tests.unit.cluster.descheduler.test_policy import TOP

from corral.cluster.descheduler.limits import Limits
from corral.cluster.descheduler.policy import parse


def limits(**changes):
    text = TOP
    for field, number in changes.items():
        text = "\n".join(
            f"{field}: {number}" if line.startswith(f"{field}:") else line
            for line in text.splitlines()
        )
    return Limits(parse(text))


@pytest.mark.parametrize(
    ("field", "message", "other"),
    [
        ("maxNoOfPodsToEvictPerNode", "node eviction limit exceeded (2)", ("n2", "default")),
        ("maxNoOfPodsToEvictPerNamespace", "namespace eviction limit exceeded (2)", ("n1", "b")),
        ("maxNoOfPodsToEvictTotal", "total eviction limit exceeded (2)", None),
    ],
)
def test_limits_hold_for_their_node_or_namespace(field, message, other):
    counted = limits(**{field: 2})
    for _ in range(2):
        assert counted.exceeded(("n1", "default")) == ""
        counted.count(("n1", "default"))
    assert counted.exceeded(("n1", "default")) == message
    assert counted.exceeded(other or ("n2", "b")) == ("" if other else message)
    assert counted.is_exhausted is (other is None)


def test_a_limit_of_zero_evicts_nothing():
    assert limits(maxNoOfPodsToEvictTotal=0).is_exhausted
