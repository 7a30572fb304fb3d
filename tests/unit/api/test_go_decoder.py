"""Mismatched types of native kinds, with the messages of Go's decoder."""

import pytest

from corral.api import go_decoder
from corral.api.go_decoder import decoding_error
from corral.api.kinds import KINDS
from corral.api.schema import schema_for

DEPLOYMENT = KINDS.by_kind("apps", "Deployment")
POD = KINDS.by_kind("", "Pod")
POD_SPEC = {"containers": [{"name": "c"}]}


def expected(kind, document) -> str:
    return decoding_error(kind, "v1", document)


def of_field(found: str, field: str, target: str) -> str:
    return f"json: cannot unmarshal {found} into Go struct field {field} of type {target}"


@pytest.mark.parametrize(
    ("spec", "fault"),
    [
        ({"replicas": "x"}, of_field("string", "DeploymentSpec.spec.replicas", "int32")),
        (
            {"replicas": 2**31},
            of_field("number 2147483648", "DeploymentSpec.spec.replicas", "int32"),
        ),
        ({"replicas": 1.5}, of_field("number 1.5", "DeploymentSpec.spec.replicas", "int32")),
        ({"paused": "no"}, of_field("string", "DeploymentSpec.spec.paused", "bool")),
        ({"selector": []}, of_field("array", "DeploymentSpec.spec.selector", "v1.LabelSelector")),
        (
            {"selector": {"matchLabels": {"a.b/c": 1}}},
            of_field("number", "LabelSelector.spec.selector.matchLabels", "string"),
        ),
        (
            {"template": {"spec": {"containers": [{"env": [{"name": "A", "value": 1}]}]}}},
            of_field("number", "EnvVar.spec.template.spec.containers.env.value", "string"),
        ),
        (
            {"template": {"spec": {"containers": {}}}},
            of_field("object", "PodSpec.spec.template.spec.containers", "[]v1.Container"),
        ),
        (
            {"template": {"spec": {"terminationGracePeriodSeconds": 2**63}}},
            of_field(
                f"number {2**63}",
                "PodSpec.spec.template.spec.terminationGracePeriodSeconds",
                "int64",
            ),
        ),
        (
            {"strategy": {"rollingUpdate": {"maxSurge": []}}},
            "json: cannot unmarshal array into Go value of type int32",
        ),
    ],
)
def test_the_first_mismatch_is_reported(spec, fault):
    assert expected(DEPLOYMENT, {"spec": spec}) == fault


@pytest.mark.parametrize("amount", ["1Q", "", "-", [], True, {"a": 1}], ids=repr)
def test_quantities_have_their_own_messages(amount):
    resources = {"requests": {"cpu": amount}}
    document = {"spec": {"containers": [{"name": "c", "resources": resources}]}}
    assert expected(POD, document).startswith(
        "quantities must match the regular expression '^([+-]?"
    )


@pytest.mark.parametrize(
    ("moment", "fault"),
    [
        (
            "soon",
            'parsing time "soon" as "2006-01-02T15:04:05Z07:00": cannot parse "soon" as "2006"',
        ),
        (5, "json: cannot unmarshal number into Go value of type string"),
    ],
)
def test_times_have_their_own_messages(moment, fault):
    assert expected(POD, {"metadata": {"creationTimestamp": moment}}) == fault


def test_invalid_base64_is_reported():
    secret = KINDS.by_kind("", "Secret")
    assert (
        expected(secret, {"data": {"a": "YQ==", "b": "!"}}) == "illegal base64 data at input byte 0"
    )
    assert expected(secret, {"data": {"a": 1}}) == of_field("number", "Secret.data", "[]uint8")
    assert expected(secret, {"data": {"a": "YWI="}}) == ""


def test_valid_documents_have_no_mismatch():
    document = {"spec": {"replicas": 2**31 - 1, "template": {"spec": POD_SPEC}, "paused": None}}
    assert expected(DEPLOYMENT, document) == ""
    assert expected(DEPLOYMENT, {"spec": {"strategy": {"rollingUpdate": {"maxSurge": "x"}}}}) == ""


def test_types_of_many_values_are_checked_once(monkeypatch):
    made = []
    real = go_decoder.object_schema
    monkeypatch.setattr(
        go_decoder, "object_schema", lambda *expected: made.append(expected) or real(*expected)
    )
    go_decoder._properties.cache_clear()
    metadata = {"ownerReferences": [{"name": "a"}] * 1000}
    assert expected(POD, {"metadata": metadata, "spec": {}}) == ""
    assert 0 < len(made) < 10


def test_any_invalid_base64_is_reported():
    maps = KINDS.by_kind("", "ConfigMap")
    assert expected(maps, {"binaryData": {"a": "YWI!"}}) == "illegal base64 data at input byte 3"
    hooks = KINDS.by_kind("admissionregistration.k8s.io", "MutatingWebhookConfiguration")
    document = {"webhooks": [{"clientConfig": {"caBundle": "YQ==!"}}]}
    assert expected(hooks, document).startswith("illegal base64 data at input byte")


@pytest.mark.parametrize(
    ("kind", "document", "fault"),
    [
        ("Secret", {"data": {"a": "!!!"}}, "illegal base64 data at input byte 0"),
        ("ConfigMap", {"binaryData": {"a": "!!!"}}, "illegal base64 data at input byte 0"),
        (
            "Pod",
            {
                "spec": {
                    "containers": [{"name": "c", "livenessProbe": {"httpGet": {"port": 2**40}}}]
                }
            },
            "json: cannot unmarshal number 1099511627776 into Go value of type int32",
        ),
        (
            "Service",
            {"spec": {"ports": [{"port": 80, "targetPort": -(2**31) - 1}]}},
            "json: cannot unmarshal number -2147483649 into Go value of type int32",
        ),
    ],
)
def test_documents_that_the_decoder_rejects_do_not_match_the_schema(kind, document, fault):
    found = KINDS.by_kind("", kind)
    assert schema_for(found).check(document)
    assert expected(found, document) == fault
