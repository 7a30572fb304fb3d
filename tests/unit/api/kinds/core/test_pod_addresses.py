"""The addresses of a pod."""

import msgspec
import pytest
from lightkube.models.core_v1 import Pod

from corral.api.addresses import parse_address
from corral.api.kinds.core.pod_addresses import pod_addresses


def pod(phase, *ips):
    return msgspec.convert(
        {"status": {"phase": phase, "podIPs": [{"ip": one} for one in ips]}}, Pod
    )


def test_a_pod_has_the_addresses_of_its_status_that_can_be_read():
    found = pod_addresses(pod("Running", "10.244.0.2", "nowhere", "", "fd00::2"))
    assert found == [parse_address("10.244.0.2"), parse_address("fd00::2")]


@pytest.mark.parametrize("without", [None, Pod(), pod("Running"), pod("Failed", "10.244.0.2")])
def test_a_pod_without_status_or_that_has_ended_has_none(without):
    assert pod_addresses(without) == []
