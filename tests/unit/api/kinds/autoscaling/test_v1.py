"""The old form of autoscalers: nothing is lost on the way there and back."""

import json
from copy import deepcopy
from typing import Any

import pytest

from corral.api.kinds.autoscaling import v1 as autoscaler_v1
from corral.api.kinds.autoscaling.defaults import cpu_metric, default

Document = dict[str, Any]

TARGET = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstanceReplicaSet", "name": "w"}
SELECTED = {"name": "hits", "selector": {"matchLabels": {"path": "a"}}}
SERVICE = {"apiVersion": "v1", "kind": "Service", "name": "web"}
METRICS = [
    {
        "type": "Resource",
        "resource": {"name": "memory", "target": {"type": "AverageValue", "averageValue": "1Gi"}},
    },
    {
        "type": "ContainerResource",
        "containerResource": {
            "name": "cpu",
            "container": "compute",
            "target": {"type": "Utilization", "averageUtilization": 60},
        },
    },
    {
        "type": "Pods",
        "pods": {"metric": SELECTED, "target": {"type": "AverageValue", "averageValue": "10"}},
    },
    {
        "type": "Object",
        "object": {
            "metric": SELECTED,
            "describedObject": SERVICE,
            "target": {"type": "Value", "value": "10"},
        },
    },
    {
        "type": "Object",
        "object": {
            "metric": {"name": "hits"},
            "describedObject": SERVICE,
            "target": {"type": "AverageValue", "averageValue": "10"},
        },
    },
    {
        "type": "External",
        "external": {"metric": SELECTED, "target": {"type": "Value", "value": "10"}},
    },
    {
        "type": "External",
        "external": {"metric": SELECTED, "target": {"type": "AverageValue", "averageValue": "1"}},
    },
]
CURRENT = [
    {
        "type": "Resource",
        "resource": {"name": "cpu", "current": {"averageUtilization": 283, "averageValue": "300m"}},
    },
    {
        "type": "ContainerResource",
        "containerResource": {
            "name": "cpu",
            "container": "compute",
            "current": {"averageUtilization": 60, "averageValue": "60m"},
        },
    },
    {"type": "Pods", "pods": {"metric": SELECTED, "current": {"averageValue": "10"}}},
    {
        "type": "Object",
        "object": {
            "metric": SELECTED,
            "describedObject": SERVICE,
            "current": {"value": "10", "averageValue": "5"},
        },
    },
    {"type": "External", "external": {"metric": SELECTED, "current": {"value": "7"}}},
]
CONDITIONS = [
    {
        "type": "AbleToScale",
        "status": "True",
        "lastTransitionTime": "2026-11-22T10:00:00Z",
        "reason": "ReadyForNewScale",
        "message": "recommended size matches current size",
    }
]


def autoscaler(status: Document | None = None, **spec: Any) -> Document:
    document = {
        "metadata": {"name": "web", "annotations": {"kept": "yes"}},
        "spec": {"scaleTargetRef": TARGET, "maxReplicas": 3, **deepcopy(spec)},
        "status": deepcopy(status or {"desiredReplicas": 0}),
    }
    default(document)
    return document


def v1(annotations: Document | None = None, **spec: Any) -> Document:
    document: Document = {
        "metadata": {"name": "web", "annotations": annotations or {}},
        "spec": {"scaleTargetRef": TARGET, "maxReplicas": 3, **spec},
    }
    autoscaler_v1.read(document)
    default(document)
    return document


def in_order(metric: Document) -> str:
    return json.dumps(metric, sort_keys=True)


@pytest.mark.parametrize(
    ("spec", "status"),
    [
        ({}, {}),
        ({"metrics": [cpu_metric(75)]}, {}),
        ({"metrics": [*METRICS, cpu_metric(75)]}, {}),
        ({"metrics": METRICS}, {}),
        ({"metrics": [cpu_metric(60), cpu_metric(75)]}, {}),
        ({"behavior": {}}, {}),
        ({"behavior": {"scaleDown": {"stabilizationWindowSeconds": 9, "tolerance": "50m"}}}, {}),
        ({}, {"currentMetrics": CURRENT, "conditions": CONDITIONS, "observedGeneration": 4}),
    ],
)
def test_autoscaling_v1_round_trips(spec, status):
    counts = {"currentReplicas": 1, "desiredReplicas": 2}
    stored = autoscaler(counts | status, **spec)
    shown = deepcopy(stored)
    autoscaler_v1.write(shown)
    again = json.loads(json.dumps(shown))
    autoscaler_v1.read(again)
    default(again)
    again["spec"]["metrics"].sort(key=in_order)  # the one of the cpu goes to the end
    stored["spec"]["metrics"].sort(key=in_order)
    assert again == stored


def test_autoscaling_v1_has_one_cpu_target():
    shown = autoscaler({"currentReplicas": 1, "desiredReplicas": 2}, metrics=[cpu_metric(75)])
    autoscaler_v1.write(shown)
    assert shown == {
        "metadata": {"name": "web", "annotations": {"kept": "yes"}},
        "spec": {
            "scaleTargetRef": TARGET,
            "minReplicas": 1,
            "maxReplicas": 3,
            "targetCPUUtilizationPercentage": 75,
        },
        "status": {"currentReplicas": 1, "desiredReplicas": 2},
    }


def test_other_fields_are_annotations_in_autoscaling_v1():
    shown = autoscaler(
        {"desiredReplicas": 2, "currentMetrics": CURRENT[:1], "conditions": CONDITIONS},
        metrics=[METRICS[0], METRICS[4]],
        behavior={"scaleDown": {"stabilizationWindowSeconds": 15}},
    )
    autoscaler_v1.write(shown)
    assert shown["status"] == {
        "currentReplicas": 0,
        "desiredReplicas": 2,
        "currentCPUUtilizationPercentage": 283,
    }
    name = "autoscaling.alpha.kubernetes.io/"
    assert shown["metadata"]["annotations"] == {
        "kept": "yes",
        f"{name}metrics": (
            '[{"type":"Resource","resource":{"name":"memory","targetAverageValue":"1Gi"}},'
            '{"type":"Object","object":{"target":{"apiVersion":"v1","kind":"Service","name":"web"},'
            '"metricName":"hits","targetValue":"0","averageValue":"10"}}]'
        ),
        f"{name}behavior": (
            '{"ScaleUp":{"StabilizationWindowSeconds":0,"SelectPolicy":"Max","Policies":'
            '[{"Type":"Pods","Value":4,"PeriodSeconds":15},'
            '{"Type":"Percent","Value":100,"PeriodSeconds":15}],"Tolerance":null},'
            '"ScaleDown":{"StabilizationWindowSeconds":15,"SelectPolicy":"Max","Policies":'
            '[{"Type":"Percent","Value":100,"PeriodSeconds":15}],"Tolerance":null}}'
        ),
        f"{name}current-metrics": (
            '[{"type":"Resource","resource":{"name":"cpu","currentAverageUtilization":283,'
            '"currentAverageValue":"300m"}}]'
        ),
        f"{name}conditions": (
            '[{"type":"AbleToScale","status":"True","lastTransitionTime":"2026-11-22T10:00:00Z",'
            '"reason":"ReadyForNewScale","message":"recommended size matches current size"}]'
        ),
    }


def test_the_cpu_target_of_autoscaling_v1_becomes_a_metric():
    assert v1(targetCPUUtilizationPercentage=75)["spec"]["metrics"] == [cpu_metric(75)]
    assert v1()["spec"]["metrics"] == [cpu_metric(80)]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "null",
        "7",
        "{}",
        "[]",
        "[7]",
        "[null]",
        "[{}]",
        '[{"type": "Resource", "resource": {"name": 7}}]',
        '[{"type": "Object", "object": {"target": [], "metricName": {}}}]',
        '[{"type": "Pods", "pods": {"metricName": "m", "selector": 4}}]',
        '{"ScaleUp": {"Policies": {}}}',
        '{"ScaleUp": {"Policies": [{"Type": "Pods"}]}}',
        '{"": {"": ""}}',
        "[" * 5000,
    ],
)
def test_invalid_annotations_are_dropped(text):
    names = ("metrics", "behavior", "current-metrics", "conditions")
    said = {f"autoscaling.alpha.kubernetes.io/{name}": text for name in names}
    document = {
        "metadata": {"name": "web", "annotations": dict(said)},
        "spec": {"scaleTargetRef": TARGET, "maxReplicas": 3},
        "status": {"currentReplicas": 1, "desiredReplicas": 1},
    }
    autoscaler_v1.read(document)
    assert document == {
        "metadata": {"name": "web"},
        "spec": {"scaleTargetRef": TARGET, "maxReplicas": 3},
        "status": {"currentReplicas": 1, "desiredReplicas": 1},
    }


def test_annotations_of_autoscaling_v1_mean_nothing_in_v2():
    document = autoscaler()
    annotations = document["metadata"]["annotations"]
    annotations["autoscaling.alpha.kubernetes.io/metrics"] = json.dumps(METRICS)
    autoscaler_v1.drop_annotations(document)
    assert document == autoscaler()
