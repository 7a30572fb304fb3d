import msgspec
import pytest
from hypothesis import given, strategies as st
from lightkube.models.core_v1 import Node, NodeCondition, Pod

from corral.api.node_fit import NodeInfo, add_all, choose, requests, unfit_reasons


def pod(cpu="100m", memory="64Mi", **spec):
    resources = {"requests": {"cpu": cpu, "memory": memory}}
    container = {"name": "a", "image": "a", "resources": resources}
    return msgspec.convert(
        {"metadata": {"name": "p"}, "spec": {"containers": [container], **spec}}, Pod
    )


def info(name="node0", cpu="2", memory="1Gi", pods="110", ready="True", labels=None, **spec):
    document = {
        "metadata": {"name": name, "labels": labels or {}},
        "spec": spec,
        "status": {
            "allocatable": {"cpu": cpu, "memory": memory, "pods": pods},
            "conditions": [{"type": "Ready", "status": ready}],
        },
    }
    return NodeInfo(msgspec.convert(document, Node))


TAINT = {"key": "gone", "value": "", "effect": "NoSchedule"}
IN_ZONE = {
    "requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": [
            {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}
        ]
    }
}


@pytest.mark.parametrize(
    ("requested", "volumes_of_class", "reason"),
    [
        (pod(cpu="3"), info(), "Insufficient cpu"),
        (pod(memory="2Gi"), info(), "Insufficient memory"),
        (pod(), info(pods="0"), "Too many pods"),
        (pod(), info(unschedulable=True), "node(s) were unschedulable"),
        (pod(), info(ready="Unknown"), "node(s) were not ready"),
        (pod(), info(taints=[TAINT]), "node(s) had untolerated taint {gone: }"),
        (
            pod(nodeSelector={"zone": "b"}),
            info(labels={"zone": "a"}),
            "node(s) didn't match Pod's node affinity/selector",
        ),
        (
            pod(affinity={"nodeAffinity": IN_ZONE}),
            info(labels={"zone": "b"}),
            "node(s) didn't match Pod's node affinity/selector",
        ),
    ],
)
def test_reasons_why_a_pod_does_not_fit(requested, volumes_of_class, reason):
    assert unfit_reasons(requested, volumes_of_class, requests(requested)) == [reason]
    assert choose(requested, [volumes_of_class]).message == f"0/1 nodes are available: 1 {reason}."


@pytest.mark.parametrize(
    ("requested", "volumes_of_class"),
    [
        (pod(), info()),
        (pod(cpu="2", memory="1Gi"), info()),
        (pod(tolerations=[{"operator": "Exists"}]), info(taints=[TAINT])),
        (pod(tolerations=[{"key": "gone", "effect": "NoSchedule"}]), info(taints=[TAINT])),
        (pod(), info(taints=[{**TAINT, "effect": "PreferNoSchedule"}])),
        (pod(affinity={"nodeAffinity": IN_ZONE}), info(labels={"zone": "a"})),
    ],
)
def test_a_fitting_node_is_chosen(requested, volumes_of_class):
    assert choose(requested, [volumes_of_class]).node == "node0"


def test_reasons_are_counted():
    infos = [info("a", cpu="1m"), info("b", cpu="1m"), info("c", unschedulable=True)]
    assert choose(pod(), infos).message == (
        "0/3 nodes are available: 1 node(s) were unschedulable, 2 Insufficient cpu."
    )
    assert choose(pod(), []).message == "no nodes available to schedule pods"


def test_a_node_under_pressure_fits_no_pod_before_its_taint():
    short = info()
    pressure = msgspec.convert({"type": "DiskPressure", "status": "True"}, NodeCondition)
    short.node.status.conditions.append(pressure)
    assert choose(pod(), [short]).message == (
        "0/1 nodes are available: 1 node(s) had untolerated taint "
        "{node.kubernetes.io/disk-pressure: }."
    )


def test_insufficient_cpu_is_reported_with_the_remedy():
    machine = pod(cpu="3")
    machine.metadata.labels = {"kubevirt.io": "virt-launcher"}
    said = choose(machine, [info()]).message
    assert said.startswith("0/1 nodes are available: 1 Insufficient cpu. A VMI without a cpu ")
    assert "spec.configuration.developerConfiguration" in said
    assert "cpuAllocationRatio" in said
    assert "corral up --cpu-allocation-ratio" in said
    assert choose(machine, [info(pods="0", cpu="4")]).message.endswith("Too many pods.")


def test_preferences_weigh_more_than_free_resources():
    avoided = info("empty", taints=[{**TAINT, "effect": "PreferNoSchedule"}])
    used = info("used")
    used.used.update({"cpu": 10**9, "memory": 2**29 * 10**9})
    assert choose(pod(), [avoided, used]).node == "used"
    liked = {
        "nodeAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {
                    "weight": 100,
                    "preference": {"matchExpressions": [{"key": "ssd", "operator": "Exists"}]},
                }
            ]
        }
    }
    ssd = info("ssd", labels={"ssd": "yes"})
    ssd.used.update(used.used)
    assert choose(pod(affinity=liked), [info("other"), ssd]).node == "ssd"


def test_init_containers_count_only_if_they_request_more():
    init = {
        "name": "i",
        "image": "i",
        "resources": {"requests": {"cpu": "1", "memory": "1Mi"}},
    }
    requested = requests(pod(initContainers=[init]))
    assert requested["cpu"] == 10**9
    assert requested["memory"] == 64 * 2**20 * 10**9


@given(st.lists(st.integers(1, 900), max_size=40), st.integers(1, 4))
def test_no_node_is_ever_overcommitted(millis, nodes):
    infos = [info(f"n{number}", cpu="2") for number in range(nodes)]
    for each in millis:
        requested = pod(cpu=f"{each}m")
        placement = choose(requested, infos)
        if placement.node:
            chosen = next(one for one in infos if one.name == placement.node)
            add_all(chosen.used, requests(requested).items(), 1)
        else:
            assert all(one.used["cpu"] + each * 10**6 > 2 * 10**9 for one in infos)
    assert all(one.used["cpu"] <= 2 * 10**9 for one in infos)
