"""Resource requests of whole pods, as in Kubernetes."""

import msgspec
import pytest
from lightkube.models.core_v1 import PodSpec

from corral.api.kinds.core.pod_resources import limits, requests


def a_container(name="c", restart=None, limits=None, **requested):
    resources = {"requests": requested, "limits": limits or {}}
    return {"name": name, "image": "i", "restartPolicy": restart, "resources": resources}


def spec(*containers, init=(), **more):
    document = {"containers": containers, "initContainers": init, **more}
    return msgspec.convert(document, PodSpec)


def sidecar(name="s", **requested):
    return a_container(name, "Always", **requested)


@pytest.mark.parametrize(
    ("init", "expected"),
    [
        ((), "300m"),
        ((sidecar(cpu="5m"),), "305m"),
        ((a_container(cpu="200m"),), "300m"),
        ((a_container(cpu="1"),), "1"),
        ((a_container(cpu="1"), sidecar(cpu="5m")), "1"),
        ((sidecar(cpu="5m"), a_container(cpu="1")), "1005m"),
        ((sidecar("a", cpu="5m"), sidecar("b", cpu="7m"), a_container(cpu="300m")), "312m"),
    ],
    ids=[
        "containers",
        "a sidecar is one of them",
        "a lesser init container",
        "a greedier one",
        "before the sidecar",
        "beside it",
        "beside two",
    ],
)
def test_requests_of_a_pod_are_those_of_concurrent_containers(init, expected):
    pod = spec(a_container("a", cpu="100m"), a_container("b", cpu="200m"), init=init)
    assert str(requests(pod)["cpu"]) == expected


def test_the_overhead_of_a_pod_counts_and_limits_nothing_by_itself():
    pod = spec(a_container(limits={"cpu": "1"}, cpu="1"), overhead={"cpu": "50m", "memory": "9Mi"})
    assert {name: str(one) for name, one in requests(pod).items()} == {
        "cpu": "1050m",
        "memory": "9Mi",
    }
    assert {name: str(one) for name, one in limits(pod).items()} == {"cpu": "1050m"}


def test_pod_level_resources_take_precedence():
    pod = spec(a_container(cpu="100m", memory="1Mi"), resources={"requests": {"cpu": "2"}})
    assert {name: str(one) for name, one in requests(pod).items()} == {"cpu": "2", "memory": "1Mi"}
