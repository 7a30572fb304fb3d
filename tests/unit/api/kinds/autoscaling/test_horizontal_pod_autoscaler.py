"""Autoscalers: what kubectl prints of them, what they get, what they may not be."""

from copy import deepcopy
from typing import Any

import pytest

from corral.api.kinds.autoscaling.horizontal_pod_autoscaler import HORIZONTAL_POD_AUTOSCALER
from corral.api.kinds.autoscaling.validation import MOST_METRICS

Document = dict[str, Any]

TARGET = {
    "apiVersion": "kubevirt.io/v1",
    "kind": "VirtualMachineInstanceReplicaSet",
    "name": "web",
}
METRIC = {"name": "queued"}


def autoscaler(**spec: Any) -> Document:
    spec = {"scaleTargetRef": TARGET, "maxReplicas": 3} | spec
    return {"metadata": {"name": "web"}, "spec": deepcopy(spec)}


def messages(old: Document | None = None, **spec: Any) -> list[str]:
    document = autoscaler(**spec)
    HORIZONTAL_POD_AUTOSCALER.default(document)
    causes = HORIZONTAL_POD_AUTOSCALER.validate(document, old, "kubernetes-admin").causes
    return [f"{cause.field}: {cause.message}" for cause in causes]


def metric(name: str, /, **source: Any) -> Document:
    return {"type": name[0].upper() + name[1:], name: source}


def cpu(**target: Any) -> Document:
    kind = "Utilization" if "averageUtilization" in target else "AverageValue"
    return metric("resource", name="cpu", target={"type": kind} | target)


def external(**target: Any) -> Document:
    return metric("external", metric=METRIC, target={"type": "AverageValue"} | target)


# -------------------------------------------------------------------- columns


def test_an_autoscaler_in_a_table():
    document = autoscaler(minReplicas=1, metrics=[cpu(averageUtilization=75)])
    document["status"] = {"currentReplicas": 2}
    columns = HORIZONTAL_POD_AUTOSCALER.columns
    assert [column.name.upper() for column in columns] == [
        "REFERENCE",
        "TARGETS",
        "MINPODS",
        "MAXPODS",
        "REPLICAS",
        "AGE",
    ]
    reference = "VirtualMachineInstanceReplicaSet/web"
    shown = [column.cell(document) for column in columns]
    assert shown == [reference, "cpu: <unknown>/75%", "1", 3, 2, None]


OBJECT = {"apiVersion": "v1", "kind": "Service", "name": "web"}


# How kubectl's printer shows them: printers_test.go of Kubernetes.
@pytest.mark.parametrize(
    ("metrics", "current", "shown"),
    [
        ([], [], "<none>"),
        ([cpu(averageUtilization=75)], [], "cpu: <unknown>/75%"),
        (
            [cpu(averageUtilization=75)],
            [metric("resource", name="cpu", current={"averageUtilization": 283})],
            "cpu: 283%/75%",
        ),
        (
            [cpu(averageValue="100m")],
            [metric("resource", name="cpu", current={"averageValue": "50m"})],
            "cpu: 50m/100m",
        ),
        ([cpu(averageValue="100m")], [], "cpu: <unknown>/100m"),
        (
            [
                metric(
                    "containerResource",
                    name="cpu",
                    container="compute",
                    target={"type": "Utilization", "averageUtilization": 80},
                )
            ],
            [metric("containerResource", name="cpu", current={"averageUtilization": 50})],
            "cpu: 50%/80%",
        ),
        (
            [
                metric(
                    "pods", metric=METRIC, target={"type": "AverageValue", "averageValue": "100m"}
                )
            ],
            [metric("pods", metric=METRIC, current={"averageValue": "50m"})],
            "50m/100m",
        ),
        (
            [metric("object", metric=METRIC, target={"type": "Value", "value": "100m"})],
            [metric("object", metric=METRIC, current={"value": "50m"})],
            "50m/100m",
        ),
        ([external(value="100")], [], "<unknown>/100"),
        (
            [external(averageValue="100")],
            [metric("external", metric=METRIC, current={"averageValue": "50"})],
            "50/100 (avg)",
        ),
        (
            [cpu(averageUtilization=75), external(value="1"), external(value="2")],
            [],
            "cpu: <unknown>/75%, <unknown>/1 + 1 more...",
        ),
        ([{"type": "Odd"}], [], "<unknown type>"),
    ],
)
def test_targets_are_printed_as_kubectl_prints_them(metrics, current, shown):
    document = autoscaler(metrics=metrics) | {"status": {"currentMetrics": current}}
    assert HORIZONTAL_POD_AUTOSCALER.columns[1].cell(document) == shown


# ------------------------------------------------------------------- defaults


def test_the_default_metric_is_80_percent_of_the_cpu():
    document = autoscaler()
    HORIZONTAL_POD_AUTOSCALER.default(document)
    assert document["spec"]["minReplicas"] == 1
    assert document["spec"]["metrics"] == [cpu(averageUtilization=80)]
    assert "behavior" not in document["spec"]


def test_behavior_gets_defaults_if_present():
    said = {"scaleDown": {"stabilizationWindowSeconds": 15, "tolerance": "0.05"}}
    document = autoscaler(behavior=said)
    HORIZONTAL_POD_AUTOSCALER.default(document)
    everything = {"type": "Percent", "value": 100, "periodSeconds": 15}
    assert document["spec"]["behavior"] == {
        "scaleUp": {
            "stabilizationWindowSeconds": 0,
            "selectPolicy": "Max",
            "policies": [{"type": "Pods", "value": 4, "periodSeconds": 15}, everything],
        },
        "scaleDown": {
            "stabilizationWindowSeconds": 15,
            "selectPolicy": "Max",
            "policies": [everything],
            "tolerance": "0.05",
        },
    }


def test_defaults_are_not_shared_between_autoscalers():
    one, other = autoscaler(behavior={}), autoscaler(behavior={})
    HORIZONTAL_POD_AUTOSCALER.default(one)
    one["spec"]["behavior"]["scaleUp"]["policies"][0]["value"] = 1
    HORIZONTAL_POD_AUTOSCALER.default(other)
    assert other["spec"]["behavior"]["scaleUp"]["policies"][0]["value"] == 4


# ----------------------------------------------------------------- validation


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"minReplicas": 3},
        {"minReplicas": 0, "metrics": [external(value="1")]},
        {"metrics": [cpu(averageUtilization=1), cpu(averageValue="100m")]},
        {"behavior": {"scaleUp": {"selectPolicy": "Disabled"}, "scaleDown": {"tolerance": 0}}},
        {"behavior": {"scaleDown": {"stabilizationWindowSeconds": 3600}}},
    ],
)
def test_valid_autoscalers_are_accepted(spec):
    assert messages(**spec) == []


def test_the_number_of_metrics_is_limited():
    crowd = [external(value="1")] * MOST_METRICS
    assert messages(metrics=crowd) == []
    fault = "spec.metrics: Too many: 101: must have at most 100 items"
    assert messages(metrics=[*crowd, cpu(averageValue="1")]) == [fault]
    # What was stored once can be changed still, but not made worse.
    old = autoscaler(metrics=[*crowd, cpu(averageValue="1")])
    assert messages(old, metrics=[*crowd, cpu(averageValue="2")]) == []
    fault = "spec.metrics: Too many: 102: must have at most 100 items"
    assert messages(old, metrics=[*crowd, *crowd[:2]]) == [fault]


# Texts of pkg/apis/autoscaling/validation of Kubernetes.
@pytest.mark.parametrize(
    ("spec", "fault"),
    [
        (
            {"minReplicas": -1},
            "minReplicas: Invalid value: -1: must be greater than or equal to 0",
        ),
        (
            {"maxReplicas": 0, "minReplicas": 0, "metrics": [external(value="1")]},
            "maxReplicas: Invalid value: 0: must be greater than 0",
        ),
        (
            {"minReplicas": 4},
            "maxReplicas: Invalid value: 3: must be greater than or equal to `minReplicas`",
        ),
        (
            {"maxReplicas": 2**31},
            "maxReplicas: Invalid value: 2147483648: must be less than or equal to 2147483647",
        ),
        (
            {"minReplicas": 0},
            (
                "metrics: Forbidden: must specify at least one Object or External metric to "
                "support scaling to zero replicas"
            ),
        ),
        ({"scaleTargetRef": TARGET | {"kind": ""}}, "scaleTargetRef.kind: Required value"),
        (
            {"scaleTargetRef": TARGET | {"name": "../web"}},
            "scaleTargetRef.name: Invalid value: \"../web\": may not contain '/'",
        ),
        (
            {"scaleTargetRef": TARGET | {"name": ".."}},
            "scaleTargetRef.name: Invalid value: \"..\": may not be '..'",
        ),
        (
            {"scaleTargetRef": {"kind": "Deployment", "name": "web"}},
            'scaleTargetRef.apiVersion: Invalid value: "": apiVersion must specify API group',
        ),
        (
            {"scaleTargetRef": TARGET | {"apiVersion": "v1"}},
            ('scaleTargetRef.apiVersion: Invalid value: "v1": apiVersion must specify API group'),
        ),
        (
            {"scaleTargetRef": TARGET | {"apiVersion": "a/b/c"}},
            (
                'scaleTargetRef.apiVersion: Invalid value: "a/b/c": unexpected GroupVersion '
                "string: a/b/c"
            ),
        ),
        (
            {"metrics": [{"type": "Odd"}]},
            (
                'metrics[0].type: Unsupported value: "Odd": supported values: '
                '"ContainerResource", "External", "Object", "Pods", "Resource"'
            ),
        ),
        (
            {"metrics": [{"type": "Resource"}]},
            (
                "metrics[0].resource: Required value: must populate information for the given "
                "metric source"
            ),
        ),
        (
            {"metrics": [cpu(averageUtilization=1) | external(value="1") | {"type": "Resource"}]},
            "metrics[0].external: Forbidden: must populate the given metric source only",
        ),
        (
            {"metrics": [cpu(averageUtilization=0)]},
            (
                "metrics[0].resource.target.averageUtilization: Invalid value: 0: must be greater "
                "than 0"
            ),
        ),
        (
            {"metrics": [cpu(averageUtilization=1, averageValue="1")]},
            (
                "metrics[0].resource.target.averageValue: Forbidden: may not set both a target "
                "raw value and a target utilization"
            ),
        ),
        (
            {"metrics": [metric("resource", name="cpu", target={"type": "Value", "value": "1"})]},
            (
                "metrics[0].resource.target.averageUtilization: Required value: must set either a "
                "target raw value or a target utilization"
            ),
        ),
        (
            {"metrics": [cpu(averageValue="-1", type="Odd")]},
            (
                'metrics[0].resource.target.type: Invalid value: "Odd": must be either '
                "Utilization, Value, or AverageValue\n"
                'metrics[0].resource.target.averageValue: Invalid value: "-1": must be positive'
            ),
        ),
        (
            {
                "metrics": [
                    metric(
                        "containerResource",
                        name="disk",
                        container="",
                        target={"type": "Utilization", "averageUtilization": 50},
                    )
                ]
            },
            (
                'metrics[0].containerResource.name: Invalid value: "disk": must be a standard '
                "resource for containers\n"
                "metrics[0].containerResource.container: Required value: must specify a container"
            ),
        ),
        (
            {"metrics": [external()]},
            (
                "metrics[0].external.target.averageValue: Required value: must set either a "
                "target value for metric or a per-pod target"
            ),
        ),
        (
            {"metrics": [external(value="1", averageValue="1")]},
            (
                "metrics[0].external.target.value: Forbidden: may not set both a target value for "
                "metric and a per-pod target"
            ),
        ),
        (
            {"metrics": [metric("pods", metric={"name": ""}, target={"type": "Value"})]},
            (
                "metrics[0].pods.metric.name: Required value: must specify a metric name\n"
                "metrics[0].pods.target.averageValue: Required value: must specify a positive "
                "target averageValue"
            ),
        ),
        (
            {
                "metrics": [
                    metric(
                        "object",
                        metric=METRIC,
                        describedObject={"kind": "Service", "name": "", "apiVersion": "v1"},
                        target={"type": "Value"},
                    )
                ]
            },
            (
                "metrics[0].object.describedObject.name: Required value\n"
                "metrics[0].object.target.averageValue: Required value: must set either a target "
                "value or averageValue"
            ),
        ),
        (
            {"behavior": {"scaleDown": {"stabilizationWindowSeconds": 3601}}},
            (
                "behavior.scaleDown.stabilizationWindowSeconds: Invalid value: 3601: must be less "
                "than or equal to 3600"
            ),
        ),
        (
            {"behavior": {"scaleDown": {"stabilizationWindowSeconds": -1}}},
            (
                "behavior.scaleDown.stabilizationWindowSeconds: Invalid value: -1: must be "
                "greater than or equal to zero"
            ),
        ),
        (
            {"behavior": {"scaleUp": {"selectPolicy": "Mean"}}},
            (
                'behavior.scaleUp.selectPolicy: Unsupported value: "Mean": supported values: '
                '"Disabled", "Max", "Min"'
            ),
        ),
        (
            {"behavior": {"scaleUp": {"policies": []}}},
            "behavior.scaleUp.policies: Required value: must specify at least one Policy",
        ),
        (
            {"behavior": {"scaleUp": {"tolerance": "-0.1"}}},
            ('behavior.scaleUp.tolerance: Invalid value: "-0.1": must be greater or equal to zero'),
        ),
        (
            {
                "behavior": {
                    "scaleUp": {"policies": [{"type": "VMs", "value": 0, "periodSeconds": 1801}]}
                }
            },
            (
                'behavior.scaleUp.policies[0].type: Unsupported value: "VMs": supported values: '
                '"Percent", "Pods"\n'
                "behavior.scaleUp.policies[0].value: Invalid value: 0: must be greater than zero\n"
                "behavior.scaleUp.policies[0].periodSeconds: Invalid value: 1801: must be less "
                "than or equal to 1800"
            ),
        ),
    ],
)
def test_invalid_autoscalers_are_rejected_with_kubernetes_messages(spec, fault):
    assert messages(**spec) == [f"spec.{line}" for line in fault.split("\n")]


def test_the_version_of_an_unchanged_target_is_not_validated():
    target = {"kind": "Deployment", "name": "web"}
    old = autoscaler(scaleTargetRef=target)
    assert messages(old, scaleTargetRef=target | {"name": "other"}) == []
    assert messages(old, scaleTargetRef=target | {"kind": "Other"}) != []


def test_counts_in_the_status_are_not_negative():
    document = autoscaler() | {"status": {"currentReplicas": -1, "desiredReplicas": 0}}
    HORIZONTAL_POD_AUTOSCALER.default(document)
    causes = HORIZONTAL_POD_AUTOSCALER.validate(document, None, "hpa").causes
    assert [cause.field for cause in causes] == ["status.currentReplicas"]
