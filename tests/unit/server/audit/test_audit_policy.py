"""The requests that a policy records, and at which level."""

import re

import pytest

from corral.api.request import User
from corral.server.audit import DEFAULT, Policy, PolicyError
from corral.server.request import route

BOB = User(name="bob", groups=("lab", "system:authenticated"))
HEAD = "apiVersion: audit.k8s.io/v1\nkind: Policy\n"


def policy(tmp_path, rules, more=""):
    path = tmp_path / "policy.yaml"
    path.write_text(f"{HEAD}{more}rules:\n{rules}")
    return Policy.read(path)


def level(policy, path, verb="get", user=BOB):
    rule = policy.find(user, verb, route.parse(path), path)
    return rule.level if rule else "None"


POD = "/api/v1/namespaces/lab1/pods/vm"
SECRETS = "/api/v1/namespaces/lab1/secrets"


@pytest.mark.parametrize(
    ("rule", "path", "matches"),
    [
        ("users: [bob]", POD, True),
        ("users: [eve]", POD, False),
        ("userGroups: [lab, other]", POD, True),
        ("userGroups: [other]", POD, False),
        ("verbs: [get]", POD, True),
        ("verbs: [list]", POD, False),
        ("namespaces: [lab1]", POD, True),
        ("namespaces: [lab2]", POD, False),
        ("namespaces: ['']", "/api/v1/nodes/one", True),
        ("namespaces: [lab1]", "/version", False),
        ("resources: [{group: ''}]", POD, True),
        ("resources: [{group: apps}]", POD, False),
        ("resources: [{resources: [pods]}]", POD, True),
        ("resources: [{resources: [pods]}]", f"{POD}/log", False),
        ("resources: [{resources: [pods/log]}]", f"{POD}/log", True),
        ("resources: [{resources: [pods/*]}]", f"{POD}/log", True),
        ("resources: [{resources: [pods/*]}]", POD, True),
        ("resources: [{resources: ['*/log']}]", f"{POD}/log", True),
        ("resources: [{resources: ['*/log']}]", POD, False),
        ("resources: [{resources: ['*']}]", f"{POD}/log", True),
        ("resources: [{resources: [pods], resourceNames: [vm]}]", POD, True),
        ("resources: [{resources: [pods], resourceNames: [other]}]", POD, False),
        ("nonResourceURLs: [/healthz*]", "/healthz/ping", True),
        ("nonResourceURLs: [/healthz]", "/healthz/ping", False),
        ("nonResourceURLs: ['*']", "/version", True),
        ("nonResourceURLs: ['*']", POD, False),
    ],
)
def test_a_rule_matches_its_lists(tmp_path, rule, path, matches):
    found = policy(tmp_path, f"- {{level: Request, {rule}}}\n")
    assert level(found, path) == ("Request" if matches else "None")


def test_the_first_rule_that_matches_decides(tmp_path):
    found = policy(
        tmp_path,
        "- {level: Metadata, resources: [{resources: [secrets]}]}\n"
        "- {level: None, users: [bob]}\n"
        "- {level: RequestResponse}\n",
    )
    assert level(found, SECRETS) == "Metadata"
    assert level(found, POD) == "None"
    assert level(found, POD, user=User(name="eve")) == "RequestResponse"
    assert level(found, POD, user=None) == "RequestResponse"


def test_the_default_policy_records_metadata_only():
    assert level(DEFAULT, SECRETS) == "Metadata"
    assert level(DEFAULT, "/healthz") == "None"
    assert level(DEFAULT, POD, user=None) == "Metadata"
    assert {rule.level for rule in DEFAULT.rules} == {"None", "Metadata"}
    assert not list(DEFAULT.faults())


@pytest.mark.parametrize(
    ("rules", "fault"),
    [
        ("- {level: Loud}\n", r"rules\[0\]\.level: Unsupported value: \"Loud\""),
        ("- {}\n", "level"),
        ("- {level: None, resource: [x]}\n", "resource"),
        ("- {level: None, omitStages: [Late]}\n", "omitStages"),
        ("- {level: None, nonResourceURLs: [healthz]}\n", "must begin with a '/'"),
        ("- {level: None, nonResourceURLs: ['/a*b']}\n", "must be the final character"),
        ("- {level: None, nonResourceURLs: [/a], namespaces: [b]}\n", "cannot apply to both"),
        ("- {level: None, resources: [{resourceNames: [x]}]}\n", "at least one resource"),
        ("  []\n", "without rules nothing is recorded"),
        ("- {level: [\n", "is no audit policy"),
    ],
)
def test_an_invalid_policy_is_rejected(tmp_path, rules, fault):
    with pytest.raises(PolicyError, match=fault) as refused:
        policy(tmp_path, rules)
    assert str(tmp_path / "policy.yaml") in str(refused.value)


def test_another_document_is_no_policy(tmp_path):
    path = tmp_path / "policy.yaml"
    path.write_text("apiVersion: v1\nkind: Secret\nrules: []\n")
    said = 'apiVersion: Unsupported value: "v1": supported values: audit.k8s.io/v1'
    with pytest.raises(PolicyError, match=re.escape(said)):
        Policy.read(path)
    path.write_text(f"{HEAD}rules: [{{level: None, verbs: get}}]")
    said = "rules[0].verbs: Expected array, got str"
    with pytest.raises(PolicyError, match=re.escape(said)):
        Policy.read(path)
