import msgspec
import pytest

from corral.api.kinds.vmi.derived import grace_seconds, guest_memory, host_name, processors
from corral.api.kinds.vmi.domain import Domain
from corral.api.kinds.vmi.vmi import VirtualMachineInstance


def domain(**fields) -> Domain:
    return msgspec.convert({"devices": {}, **fields}, Domain)


def machine(name="vm", **spec) -> VirtualMachineInstance:
    document = {"metadata": {"name": name}, "spec": {"domain": {"devices": {}}, **spec}}
    return msgspec.convert(document, VirtualMachineInstance)


@pytest.mark.parametrize(
    ("fields", "layout"),
    [
        ({}, (1, 1, 1)),
        ({"cpu": {"cores": 2}}, (1, 2, 1)),
        ({"cpu": {"sockets": 2, "threads": 2}, "resources": {"limits": {"cpu": "9"}}}, (2, 1, 2)),
        ({"cpu": {"model": "host-model"}, "resources": {"limits": {"cpu": 3}}}, (3, 1, 1)),
        ({"resources": {"limits": {"cpu": "2500m"}}}, (3, 1, 1)),
        ({"resources": {"limits": {"cpu": "2"}, "requests": {"cpu": "1"}}}, (2, 1, 1)),
        ({"resources": {"requests": {"cpu": "100m"}}}, (1, 1, 1)),
        ({"resources": {"requests": {"cpu": "rubbish"}}}, (1, 1, 1)),
        ({"resources": {"requests": {"cpu": "-4"}}}, (1, 1, 1)),
        ({"resources": {"requests": {"cpu": "1e300"}}}, (255, 1, 1)),
    ],
)
def test_vcpus_are_by_topology_then_limit_then_request(fields, layout):
    found = processors(domain(**fields))
    assert found == layout
    assert found.total == layout[0] * layout[1] * layout[2]


@pytest.mark.parametrize(
    ("memory", "resources", "expected"),
    [
        (None, {"requests": {"memory": "1Gi"}, "limits": {"memory": "2Gi"}}, 2**30),
        (None, {"limits": {"memory": "2Gi"}}, 2**31),
        (None, {"requests": {"memory": "0"}, "limits": {"memory": "2Gi"}}, 2**31),
        ({"guest": "512Mi"}, {"requests": {"memory": "256Mi"}}, 2**29),
        ({"hugepages": {"pageSize": "2Mi"}}, {}, 2**21),
        ({"hugepages": {}}, {}, 2**27),
        (None, {}, 2**27),
    ],
)
def test_guest_memory_is_by_guest_then_request_then_limit(memory, resources, expected):
    assert guest_memory(domain(memory=memory, resources=resources)).rounded_up() == expected


@pytest.mark.parametrize(
    ("name", "own", "expected"),
    [
        ("web", "", "web"),
        ("web", "db", "db"),
        ("a.b.c", "", "a"),
        (f"{'x' * 62}-y", "", "x" * 62),
        ("x" * 100, "", "x" * 63),
    ],
)
def test_the_host_name_is_the_first_part_of_the_name(name, own, expected):
    assert host_name(machine(name, hostname=own)) == expected


@pytest.mark.parametrize(("given", "seconds"), [(None, 30), (0, 0), (90, 90), (-5, 0)])
def test_the_default_grace_period_is_30_seconds(given, seconds):
    assert grace_seconds(machine(terminationGracePeriodSeconds=given).spec) == seconds
