"""Quota usage of objects, as Kubernetes' evaluators compute it."""

from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from hypothesis import given, strategies as st
from lightkube.models.core_v1 import PersistentVolumeClaim, Pod, ResourceQuotaSpec, Service

from corral.api.kinds.core.kinds import CONFIG_MAP
from corral.api.kinds.core.pod import POD
from corral.api.kinds.kubevirt.kinds import VIRTUAL_MACHINE
from corral.api.kinds.networking.service import SERVICE
from corral.api.kinds.storage.persistentvolumeclaim import CLAIM
from corral.api.quantity import parse
from corral.api.quota_usage import (
    ONE,
    Usage,
    UsageTotals,
    exceeded,
    matching_names,
    unspecified,
    usage_of,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def a_pod(status=None, metadata=None, init=(), **resources):
    container = {"name": "main", "image": "i", "resources": resources}
    spec = {"containers": [container], "initContainers": init}
    document = {"metadata": metadata or {}, "spec": spec, "status": status or {}}
    return msgspec.convert(document, Pod)


def texts(amounts):
    return {name: str(one) for name, one in amounts.items()}


def test_usage_of_a_pod_has_every_name_of_a_resource():
    requests = {"cpu": "100m", "hugepages-2Mi": "4Mi", "example.org/gpu": "2"}
    limits = {"memory": "1Gi", "hugepages-2Mi": "4Mi", "example.org/gpu": "2"}
    assert texts(usage_of(POD, a_pod(requests=requests, limits=limits)).amounts) == {
        "count/pods": "1",
        "pods": "1",
        "cpu": "100m",
        "requests.cpu": "100m",
        "limits.memory": "1Gi",
        "hugepages-2Mi": "4Mi",
        "requests.hugepages-2Mi": "4Mi",
        "requests.example.org/gpu": "2",
    }


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_finished_pod_counts_only_as_object(phase):
    pod = a_pod(status={"phase": phase}, requests={"cpu": "1"})
    assert usage_of(POD, pod).amounts == {"count/pods": ONE}


def test_a_pod_after_its_grace_period_counts_only_as_object():
    """Its node may never report its end."""
    metadata = {"deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 30}
    charged = usage_of(POD, a_pod(metadata=metadata, requests={"cpu": "1"}))
    assert charged.at(NOW + timedelta(seconds=30))["cpu"] == parse("1")
    assert charged.at(NOW + timedelta(seconds=31)) == {"count/pods": ONE}
    charges = UsageTotals(POD, lambda pod: usage_of(POD, pod))
    charges.update([(1, a_pod(metadata=metadata)), (2, a_pod())])
    spec = ResourceQuotaSpec(hard={"pods": "5", "count/pods": "5"})
    assert texts(charges.used(spec, NOW)) == {"pods": "2", "count/pods": "2"}
    assert charges.next_decrease(NOW) == NOW + timedelta(seconds=30)
    later = NOW + timedelta(minutes=1)
    assert texts(charges.used(spec, later)) == {"pods": "1", "count/pods": "2"}
    assert charges.next_decrease(later) is None


def test_empty_scopes_are_dropped():
    charges = UsageTotals(POD, lambda pod: usage_of(POD, pod))
    spec = ResourceQuotaSpec(hard={"pods": "5"})
    for number in range(5):
        pod = a_pod(requests={"cpu": "1"})
        pod.spec.priorityClassName = f"class-{number}"
        charges.update([(number, pod), ("always", a_pod())])
        assert texts(charges.used(spec, NOW)) == {"pods": "2"}
        assert len(charges._groups) == 2


def test_a_pod_with_an_endless_grace_period_keeps_its_usage():
    metadata = {
        "deletionTimestamp": "8361-01-01T00:00:00Z",
        "deletionGracePeriodSeconds": 200_000_000_000,
    }
    charged = usage_of(POD, a_pod(metadata=metadata, requests={"cpu": "1"}))
    assert charged.until is None
    assert charged.at(NOW)["cpu"] == parse("1")


def test_sidecars_count_and_every_container_needs_requests():
    log = {"name": "log", "image": "i", "restartPolicy": "Always"}
    loud = {**log, "resources": {"requests": {"cpu": "5m"}}}
    pod = a_pod(init=[loud], requests={"cpu": "100m"})
    assert usage_of(POD, pod).amounts["requests.cpu"] == parse("105m")
    assert unspecified(pod, ["requests.cpu", "pods"]) == ""
    silent = a_pod(init=[log], requests={"cpu": "100m"})
    assert unspecified(silent, ["cpu", "limits.memory"]) == (
        "must specify cpu for: log; limits.memory for: log,main"
    )


def test_usage_of_a_claim_is_the_larger_of_request_and_capacity():
    document = {
        "spec": {"storageClassName": "fast", "resources": {"requests": {"storage": "1Gi"}}},
        "status": {"allocatedResources": {"storage": "3Gi"}},
    }
    assert texts(usage_of(CLAIM, msgspec.convert(document, PersistentVolumeClaim)).amounts) == {
        "count/persistentvolumeclaims": "1",
        "persistentvolumeclaims": "1",
        "requests.storage": "3Gi",
        "fast.storageclass.storage.k8s.io/persistentvolumeclaims": "1",
        "fast.storageclass.storage.k8s.io/requests.storage": "3Gi",
    }


def test_requested_node_ports_of_a_load_balancer_count():
    ports = [{"port": 80, "nodePort": 30080}, {"port": 81}]
    spec = {"type": "LoadBalancer", "ports": ports, "allocateLoadBalancerNodePorts": False}
    accepted = usage_of(SERVICE, msgspec.convert({"spec": spec}, Service)).amounts
    assert accepted["services.nodeports"] == accepted["services.loadbalancers"] == ONE


def test_kinds_with_an_old_name_count_by_both():
    assert set(usage_of(CONFIG_MAP, None).amounts) == {"configmaps", "count/configmaps"}
    assert set(usage_of(VIRTUAL_MACHINE, None).amounts) == {"count/virtualmachines.kubevirt.io"}


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        (POD, ["count/pods", "limits.cpu", "requests.example.org/gpu"]),
        (CLAIM, ["fast.storageclass.storage.k8s.io/requests.storage", "requests.storage"]),
        (SERVICE, ["services"]),
        (CONFIG_MAP, []),
    ],
)
def test_a_quota_matches_each_kind_by_its_names(kind, names):
    listed = [
        *("count/pods", "limits.cpu", "requests.example.org/gpu", "requests.storage", "services"),
        *("fast.storageclass.storage.k8s.io/requests.storage", "count/podsx", "secrets"),
    ]
    spec = ResourceQuotaSpec(hard=dict.fromkeys(listed, "1"))
    assert matching_names(spec, kind, Usage({})) == names


def test_only_exceeded_limits_are_named():
    hard, accepted = {"a": parse("2"), "b": parse("2")}, {"a": parse("1"), "b": ONE}
    assert exceeded(hard, accepted, {"a": ONE, "b": ONE}) == ""
    assert exceeded(hard, accepted, {"a": parse("1001m"), "b": ONE}) == (
        "requested: a=1001m, used: a=1, limited: a=2"
    )


@given(
    st.lists(
        st.dictionaries(st.integers(1, 12), st.integers(0, 3), max_size=8), min_size=1, max_size=6
    )
)
def test_incremental_sums_are_those_of_all_objects(states):
    """``states`` are, by version, how many processors each object asks for at one time."""
    charges = UsageTotals(POD, lambda pod: usage_of(POD, pod))
    spec = ResourceQuotaSpec(hard={"requests.cpu": "9", "pods": "9"})
    best_effort = ResourceQuotaSpec(hard={"pods": "9"}, scopes=["BestEffort"])
    for state in states:
        # A version never changes: its requests are part of its identity.
        pods = [
            ((version, cpu), a_pod(requests={"cpu": str(cpu)}) if cpu else a_pod())
            for version, cpu in state.items()
        ]
        charges.update(pods)
        assert texts(charges.used(spec, NOW)) == {
            "requests.cpu": str(sum(state.values())),
            "pods": str(len(state)),
        }
        idle = sum(cpu == 0 for cpu in state.values())
        assert texts(charges.used(best_effort, NOW)) == {"pods": str(idle)}
