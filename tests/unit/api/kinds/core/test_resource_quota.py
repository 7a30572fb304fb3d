"""ResourceQuota and LimitRange as documents: what they may say, and how they are shown."""

import pytest

from corral.api.kinds.core.limit_range import LIMIT_RANGE
from corral.api.kinds.core.resource_quota import RESOURCE_QUOTA


def causes(kind, spec, old=None):
    document = {"metadata": {"name": "q"}, "spec": spec}
    kind.default(document)
    before = None if old is None else {"metadata": {"name": "q"}, "spec": old}
    return [
        str(each.field) + ": " + each.message for each in kind.validate(document, before, "").causes
    ]


@pytest.mark.parametrize(
    ("hard", "expected"),
    [
        ({"pods": "10", "requests.cpu": "1500m", "count/deployments.apps": "3"}, []),
        ({"hugepages-2Mi": "1Gi", "requests.example.org/gpu": "2"}, []),
        ({"gold.storageclass.storage.k8s.io/requests.storage": "10Gi"}, []),
        (
            {"machines": "1"},
            [
                (
                    'spec.hard[machines]: Invalid value: "machines": must be a '
                    "standard resource type or fully qualified"
                ),
                (
                    'spec.hard[machines]: Invalid value: "machines": must be a '
                    "standard resource for quota"
                ),
            ],
        ),
        (
            {"pods": "-1"},
            ['spec.hard[pods]: Invalid value: "-1": must be greater than or equal to 0'],
        ),
        ({"pods": "1500m"}, ['spec.hard[pods]: Invalid value: "1500m": must be an integer']),
    ],
)
def test_quotas_of_valid_resources_are_accepted(hard, expected):
    assert causes(RESOURCE_QUOTA, {"hard": hard}) == expected


def test_invalid_resource_names_are_rejected():
    wording, _ = causes(RESOURCE_QUOTA, {"hard": {"a b": "1"}})
    assert wording.startswith('spec.hard[a b]: Invalid value: "a b": name part must consist of')


@pytest.mark.parametrize(
    ("scopes", "hard", "expected"),
    [
        (["NotTerminating", "NotBestEffort"], {"pods": "1", "limits.cpu": "1"}, None),
        (["BestEffort"], {"pods": "1"}, None),
        (["BestEffort"], {"limits.cpu": "1"}, "unsupported scope applied to resource"),
        (["NotTerminating"], {"services": "1"}, "unsupported scope applied to resource"),
        (["VolumeAttributesClass"], {"requests.storage": "1Gi"}, None),
        (["Sometimes"], {"pods": "1"}, "unsupported scope"),
        (["Terminating", "NotTerminating"], {"pods": "1"}, "conflicting scopes"),
    ],
)
def test_scopes_must_apply_to_the_resources(scopes, hard, expected):
    wording = causes(RESOURCE_QUOTA, {"hard": hard, "scopes": scopes})
    shown = ",".join(f'"{scope}"' for scope in scopes)
    assert wording == ([f"spec.scopes: Invalid value: [{shown}]: {expected}"] if expected else [])


@pytest.mark.parametrize(
    ("requirement", "expected"),
    [
        ({"scopeName": "PriorityClass", "operator": "In", "values": ["gold"]}, ""),
        ({"scopeName": "PriorityClass", "operator": "Exists"}, ""),
        (
            {"scopeName": "PriorityClass", "operator": "In"},
            (
                ".values: Required value: must be at least one value when `operator` is 'In' or "
                "'NotIn' for scope selector"
            ),
        ),
        (
            {"scopeName": "PriorityClass", "operator": "Exists", "values": ["gold"]},
            (
                ".values: Forbidden: may not be specified when `operator` is 'Exist' or "
                "'DoesNotExist' for scope selector"
            ),
        ),
        (
            {"scopeName": "BestEffort", "operator": "DoesNotExist"},
            (
                ".operator: Invalid value: \"DoesNotExist\": only 'Exist' operator is supported "
                "for specified scopes"
            ),
        ),
    ],
)
def test_scope_selectors_are_validated(requirement, expected):
    spec = {"hard": {"pods": "1"}, "scopeSelector": {"matchExpressions": [requirement]}}
    path = "spec.scopeSelector.matchExpressions"
    assert causes(RESOURCE_QUOTA, spec) == ([f"{path}{expected}"] if expected else [])


def test_scopes_of_a_quota_are_immutable():
    old = {"hard": {"pods": "1"}, "scopes": ["Terminating"]}
    assert causes(RESOURCE_QUOTA, {"hard": {"pods": "2"}}, old) == [
        "spec.scopes: Invalid value: []: field is immutable"
    ]


def test_tables_of_quotas_have_used_and_hard():
    status = {
        "hard": {"pods": "3", "requests.cpu": "1", "limits.cpu": "2"},
        "used": {"pods": "1", "requests.cpu": "10m", "limits.cpu": "0"},
    }
    cells = [column.cell({"status": status}) for column in RESOURCE_QUOTA.columns[:2]]
    assert cells == ["pods: 1/3, requests.cpu: 10m/1", "limits.cpu: 0/2"]


def test_defaults_of_a_limit_range_complete_each_other():
    document = {
        "spec": {
            "limits": [
                {
                    "type": "Container",
                    "max": {"cpu": "2", "memory": "1Gi"},
                    "min": {"cpu": "10m", "hugepages-2Mi": "2Mi"},
                    "default": {"cpu": "1"},
                },
                {"type": "Pod", "max": {"cpu": "4"}},
            ]
        }
    }
    LIMIT_RANGE.default(document)
    container, pod = document["spec"]["limits"]
    assert container["default"] == {"cpu": "1", "memory": "1Gi"}
    assert container["defaultRequest"] == {"cpu": "1", "memory": "1Gi", "hugepages-2Mi": "2Mi"}
    assert pod == {"type": "Pod", "max": {"cpu": "4"}}


@pytest.mark.parametrize(
    ("item", "expected"),
    [
        (
            {"min": {"cpu": "2"}, "max": {"cpu": "1"}, "default": {"cpu": "2"}},
            [
                'min[cpu]: Invalid value: "2": min value 2 is greater than max value 1',
                (
                    'defaultRequest[cpu]: Invalid value: "2": default request value 2 is greater '
                    "than max value 1"
                ),
                'default[cpu]: Invalid value: "1": default value 2 is greater than max value 1',
            ],
        ),
        (
            {"default": {"cpu": "1"}, "defaultRequest": {"cpu": "2"}},
            [
                (
                    'defaultRequest[cpu]: Invalid value: "2": default request value 2 is greater '
                    "than default limit value 1"
                )
            ],
        ),
        (
            {"type": "Pod", "default": {"cpu": "1"}},
            ["default: Forbidden: may not be specified when `type` is 'Pod'"],
        ),
        (
            {"type": "PersistentVolumeClaim", "max": {"cpu": "1"}},
            [
                (
                    "limits: Required value: either minimum or maximum storage value is required, "
                    "but neither was provided"
                )
            ],
        ),
        (
            {"maxLimitRequestRatio": {"cpu": "500m"}},
            ['maxLimitRequestRatio[cpu]: Invalid value: "500m": ratio 500m is less than 1'],
        ),
        (
            {"min": {"cpu": "1"}, "max": {"cpu": "2"}, "maxLimitRequestRatio": {"cpu": "3"}},
            [
                (
                    'maxLimitRequestRatio[cpu]: Invalid value: "3": ratio 3 is greater than '
                    "max/min = 2.000000"
                )
            ],
        ),
        (
            {"max": {"storage": "1"}},
            [
                (
                    'max[storage]: Invalid value: "storage": must be a standard resource for '
                    "containers"
                ),
                (
                    'default[storage]: Invalid value: "storage": must be a standard resource for '
                    "containers"
                ),
                (
                    'defaultRequest[storage]: Invalid value: "storage": must be a standard '
                    "resource for containers"
                ),
            ],
        ),
        (
            {"type": "Machine"},
            ['type: Invalid value: "Machine": must be a standard limit type or fully qualified'],
        ),
    ],
)
def test_contradictory_limit_ranges_are_rejected(item, expected):
    wording = causes(LIMIT_RANGE, {"limits": [{"type": "Container", **item}]})
    assert wording == [f"spec.limits[0].{each}" for each in expected]


def test_each_type_of_a_limit_range_is_unique():
    twice = [{"type": "Pod", "max": {"cpu": "1"}}] * 2
    assert causes(LIMIT_RANGE, {"limits": twice}) == ['spec.limits[1].type: Duplicate value: "Pod"']
