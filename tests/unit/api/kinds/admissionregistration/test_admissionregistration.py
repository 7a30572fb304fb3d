"""Tests of what webhooks' configurations may be, and of what they say where they say nothing."""

import pytest

from corral.api.kinds.admissionregistration import MUTATING, VALIDATING

RULE = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE"]}
WEBHOOK = {
    "name": "a.corral.example",
    "clientConfig": {"url": "https://a.example/x"},
    "rules": [RULE],
    "sideEffects": "None",
    "admissionReviewVersions": ["v1"],
}


def configuration(*webhooks):
    return {"metadata": {"name": "a"}, "webhooks": list(webhooks)}


def faults(*webhooks):
    document = configuration(*webhooks)
    VALIDATING.default(document)
    expected = VALIDATING.validate(document, None, "somebody").causes
    return [f"{cause.field}: {cause.message}" for cause in expected]


def test_defaults_match_everything_and_fail_closed():
    document = configuration({**WEBHOOK, "clientConfig": {"service": {"name": "a"}}})
    MUTATING.default(document)
    (webhook,) = document["webhooks"]
    assert webhook["failurePolicy"] == "Fail"
    assert webhook["matchPolicy"] == "Equivalent"
    assert webhook["timeoutSeconds"] == 10
    assert webhook["reinvocationPolicy"] == "Never"
    assert (webhook["namespaceSelector"], webhook["objectSelector"]) == ({}, {})
    assert webhook["clientConfig"]["service"]["port"] == 443
    assert webhook["rules"][0]["scope"] == "*"


def test_a_complete_webhook_is_valid():
    assert faults(WEBHOOK) == []


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"name": ""}, "webhooks[0].name: Required value"),
        ({"name": "a.b"}, "should be a domain with at least three segments separated by dots"),
        (
            {"sideEffects": None},
            "sideEffects: Required value: must specify one of None, NoneOnDryRun",
        ),
        ({"sideEffects": "Some"}, 'Unsupported value: "Some": supported values: "None", "NoneOn'),
        ({"timeoutSeconds": 31}, "the timeout value must be between 1 and 30 seconds"),
        ({"failurePolicy": "Maybe"}, 'Unsupported value: "Maybe": supported values: "Fail", "Ign'),
        ({"matchPolicy": "Maybe"}, 'supported values: "Equivalent", "Exact"'),
        ({"admissionReviewVersions": []}, "Required value: must specify one of v1, v1beta1"),
        ({"admissionReviewVersions": ["v2"]}, "must include at least one of v1, v1beta1"),
        ({"admissionReviewVersions": ["v1", "v1"]}, '[1]: Invalid value: "v1": duplicate version'),
        ({"clientConfig": {}}, "Required value: exactly one of url or service is required"),
        ({"clientConfig": {"url": "http://a"}}, "'https' is the only allowed URL scheme"),
        ({"clientConfig": {"url": "https:///x"}}, "host must be specified"),
        ({"clientConfig": {"url": "https://a@b/"}}, "user information is not permitted"),
        ({"clientConfig": {"url": "https://a/#b"}}, "fragments are not permitted in the URL"),
        ({"clientConfig": {"url": "https://a/?b"}}, "query parameters are not permitted"),
        ({"clientConfig": {"service": {"name": "a"}}}, "service namespace is required"),
        (
            {"clientConfig": {"service": {"name": "a", "namespace": "b", "path": "x"}}},
            "must start with a '/'",
        ),
        ({"rules": [{**RULE, "operations": []}]}, "rules[0].operations: Required value"),
        (
            {"rules": [{**RULE, "operations": ["*", "CREATE"]}]},
            "if '*' is present, must not specify other operations",
        ),
        ({"rules": [{**RULE, "operations": ["GET"]}]}, 'Unsupported value: "GET"'),
        ({"rules": [{**RULE, "apiVersions": [""]}]}, "apiVersions[0]: Required value"),
        ({"rules": [{**RULE, "scope": "All"}]}, 'supported values: "*", "Cluster", "Namespaced"'),
        (
            {"rules": [{**RULE, "resources": ["pods/*", "pods/log"]}]},
            "if 'pods/*' is present, must not specify pods/log",
        ),
        (
            {"rules": [{**RULE, "resources": ["*/*", "pods"]}]},
            "if '*/*' is present, must not specify other resources",
        ),
        (
            {"rules": [{**RULE, "resources": ["*", "pods"]}]},
            "if '*' is present, must not specify other resources without subresources",
        ),
        (
            {"matchConditions": [{"name": "a", "expression": "object.x"}]},
            'matchConditions[0].expression: Invalid value: "object.x": must evaluate to bool',
        ),
        (
            {"matchConditions": [{"name": "a b", "expression": "true"}]},
            "matchConditions[0].name: Invalid value",
        ),
        (
            {"matchConditions": [{"name": "a", "expression": "true"}] * 2},
            "matchConditions[1].name: Duplicate value",
        ),
        (
            {"objectSelector": {"matchExpressions": [{"key": "a", "operator": "Is"}]}},
            "not a valid selector operator",
        ),
    ],
)
def test_invalid_webhooks_are_rejected(change, expected):
    said = faults({**WEBHOOK, **change})
    assert any(expected in fault for fault in said), said


def test_names_of_webhooks_are_unique():
    assert faults(WEBHOOK, WEBHOOK) == ['webhooks[1].name: Duplicate value: "a.corral.example"']
