"""What a machine may take of its node, by its pod."""

import pytest
from lightkube.models.core_v1 import Container, Pod, PodSpec, ResourceRequirements

from corral.node.limits.bounds import Bounds, bounds_of


def pod(**limits):
    helper = Container(name="volumeroot", resources=ResourceRequirements(limits={"cpu": "10m"}))
    compute = Container(name="compute", resources=ResourceRequirements(limits=limits))
    return Pod(spec=PodSpec(containers=[helper, compute]))


def test_limits_of_the_compute_container_count():
    bounds = bounds_of(pod(cpu="300m", memory="128Mi"))
    assert bounds == Bounds(cpu_nanos=300_000_000, memory_bytes=128 << 20)
    assert bounds.processors == 0.3


def test_missing_limits_are_unlimited():
    assert not bounds_of(pod())
    assert bounds_of(pod(memory="1Gi")).processors == float("inf")


@pytest.mark.parametrize("spec", [None, PodSpec(containers=[Container(name="compute")])])
def test_a_pod_without_limits_is_unlimited(spec):
    assert not bounds_of(Pod(spec=spec))


def test_fractions_are_counted_in_billionths_and_bytes_are_rounded_up():
    bounds = bounds_of(pod(cpu="1500u", memory="1500m"))
    assert bounds == Bounds(cpu_nanos=1_500_000, memory_bytes=2)
