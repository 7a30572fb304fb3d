"""Network policies: what kubectl prints of them, what they get, what they may not be."""

from typing import Any

import pytest

from corral.api.kinds.networking.networkpolicy import NETWORK_POLICY

Document = dict[str, Any]


def policy(**spec: Any) -> Document:
    return {"metadata": {"name": "quiet"}, "spec": {"podSelector": {}, **spec}}


def messages(**spec: Any) -> list[str]:
    document = policy(**spec)
    NETWORK_POLICY.default(document)
    causes = NETWORK_POLICY.validate(document, None, "kubernetes-admin").causes
    return [f"{cause.field}: {cause.message}" for cause in causes]


@pytest.mark.parametrize(
    ("selector", "shown"),
    [
        ({}, "<none>"),
        ({"matchLabels": {"b": "c", "a": "b"}}, "a=b,b=c"),
        (
            {"matchExpressions": [{"key": "a", "operator": "In", "values": ["c", "b"]}]},
            "a in (b,c)",
        ),
        ({"matchExpressions": [{"key": "a", "operator": "x"}]}, "<error>"),
    ],
)
def test_a_policy_in_a_table(selector, shown):
    column = NETWORK_POLICY.columns[0]
    assert (column.name, column.cell(policy(podSelector=selector))) == ("Pod-Selector", shown)


@pytest.mark.parametrize(
    ("spec", "types"),
    [
        ({}, ["Ingress"]),
        ({"egress": []}, ["Ingress"]),
        ({"egress": [{}]}, ["Ingress", "Egress"]),
        ({"policyTypes": ["Egress"]}, ["Egress"]),
    ],
)
def test_policy_types_have_defaults(spec, types):
    document = policy(**spec)
    NETWORK_POLICY.default(document)
    assert document["spec"]["policyTypes"] == types


def test_ports_default_to_tcp():
    document = policy(ingress=[{"ports": [{"port": 80}, {}]}], egress=[{"ports": [{}]}])
    NETWORK_POLICY.default(document)
    spec = document["spec"]
    protocols = [port["protocol"] for port in spec["ingress"][0]["ports"]]
    assert [*protocols, spec["egress"][0]["ports"][0]["protocol"]] == ["TCP"] * 3


def test_a_policy_without_a_spec_is_valid():
    document: Document = {"metadata": {"name": "quiet"}}
    NETWORK_POLICY.default(document)
    assert not NETWORK_POLICY.validate(document, None, "kubernetes-admin").causes


@pytest.mark.parametrize(
    "spec",
    [
        {"ingress": [{}]},
        {"ingress": [{"from": [{"podSelector": {}, "namespaceSelector": {}}]}]},
        {"ingress": [{"from": [{"ipBlock": {"cidr": "::/0", "except": ["fd00::/8"]}}]}]},
        {"egress": [{"ports": [{"port": 1, "endPort": 1}, {"port": "web"}]}]},
    ],
)
def test_valid_policies_are_accepted(spec):
    assert messages(**spec) == []


@pytest.mark.parametrize(
    ("spec", "fault"),
    [
        (
            {"ingress": [{"ports": [{"protocol": "x"}]}]},
            (
                'spec.ingress[0].ports[0].protocol: Unsupported value: "x": supported values: '
                '"SCTP", "TCP", "UDP"'
            ),
        ),
        (
            {"ingress": [{"ports": [{"port": 0}]}]},
            (
                "spec.ingress[0].ports[0].port: Invalid value: 0: must be between 1 and 65535, "
                "inclusive"
            ),
        ),
        (
            {"egress": [{"ports": [{"port": "80"}]}]},
            (
                'spec.egress[0].ports[0].port: Invalid value: "80": must contain at least one '
                "letter (a-z)"
            ),
        ),
        (
            {"ingress": [{"ports": [{"port": 9, "endPort": 8}]}]},
            (
                "spec.ingress[0].ports[0].endPort: Invalid value: 8: must be greater than or equal "
                "to `port`"
            ),
        ),
        (
            {"ingress": [{"ports": [{"endPort": 8}]}]},
            (
                "spec.ingress[0].ports[0].endPort: Invalid value: 8: may not be specified when "
                "`port` is not specified"
            ),
        ),
        (
            {"ingress": [{"ports": [{"port": "web", "endPort": 8}]}]},
            (
                "spec.ingress[0].ports[0].endPort: Invalid value: 8: may not be specified when "
                "`port` is non-numeric"
            ),
        ),
        (
            {"ingress": [{"from": [{}]}]},
            "spec.ingress[0].from[0]: Required value: must specify a peer",
        ),
        (
            {"egress": [{"to": [{"ipBlock": {"cidr": "10.0.0.0/8"}, "podSelector": {}}]}]},
            "spec.egress[0].to[0]: Forbidden: may not specify both ipBlock and another peer",
        ),
        (
            {"egress": [{"to": [{"ipBlock": {"cidr": ""}}]}]},
            "spec.egress[0].to[0].ipBlock.cidr: Required value",
        ),
        (
            {"egress": [{"to": [{"ipBlock": {"cidr": "x"}}]}]},
            (
                'spec.egress[0].to[0].ipBlock.cidr: Invalid value: "x": must be a valid CIDR '
                "value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"
            ),
        ),
        (
            {"egress": [{"to": [{"ipBlock": {"cidr": "10.0.0.0/8", "except": ["11.0.0.0/16"]}}]}]},
            (
                'spec.egress[0].to[0].ipBlock.except[0]: Invalid value: "11.0.0.0/16": must be a '
                "strict subset of `cidr`"
            ),
        ),
        (
            {"egress": [{"to": [{"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.0.0.0/8"]}}]}]},
            (
                'spec.egress[0].to[0].ipBlock.except[0]: Invalid value: "10.0.0.0/8": must be a '
                "strict subset of `cidr`"
            ),
        ),
        (
            {"policyTypes": ["x"]},
            'spec.policyTypes[0]: Unsupported value: "x": supported values: "Egress", "Ingress"',
        ),
        (
            {"policyTypes": ["Egress"] * 3},
            (
                'spec.policyTypes: Invalid value: ["Egress","Egress","Egress"]: may not specify '
                "more than two policyTypes"
            ),
        ),
        (
            {"podSelector": {"matchExpressions": [{"key": "a", "operator": "In"}]}},
            (
                "spec.podSelector.matchExpressions[0].values: Required value: must be specified "
                "when `operator` is 'In' or 'NotIn'"
            ),
        ),
        (
            {"podSelector": {"matchExpressions": [{"key": "a", "operator": "x"}]}},
            (
                'spec.podSelector.matchExpressions[0].operator: Invalid value: "x": not a valid '
                "selector operator"
            ),
        ),
        (
            {
                "podSelector": {
                    "matchExpressions": [{"key": "a", "operator": "Exists", "values": ["b"]}]
                }
            },
            (
                "spec.podSelector.matchExpressions[0].values: Forbidden: may not be specified when "
                "`operator` is 'Exists' or 'DoesNotExist'"
            ),
        ),
    ],
)
def test_invalid_policies_are_rejected(spec, fault):
    assert messages(**spec) == [fault]


def test_selectors_are_validated():
    found = messages(ingress=[{"from": [{"namespaceSelector": {"matchLabels": {"a b": "-"}}}]}])
    path = "spec.ingress[0].from[0].namespaceSelector.matchLabels"
    assert [line.split(": ")[0] for line in found] == [path, path]
