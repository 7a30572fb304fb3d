"""Requests that a rule allows: the cases of Kubernetes' authorizer."""

import pytest

from corral.api.request import User
from corral.server.authz import Attributes
from corral.server.authz.policy_rules import PolicyRule, Rules

BOB = User(name="bob")


def attributes(verb, target, group="", name=""):
    resource, _, subresource = target.partition("/")
    return Attributes(BOB, verb, group, resource, subresource, "default", name)


def rule(verbs, resources, groups="core", names=""):
    return {
        "verbs": verbs.split(),
        "apiGroups": ["" if group == "core" else group for group in groups.split()],
        "resources": resources.split(),
        "resourceNames": names.split(),
    }


@pytest.mark.parametrize(
    ("document", "requested", "allowed"),
    [
        (rule("get", "pods"), attributes("get", "pods"), True),
        (rule("get", "pods"), attributes("list", "pods"), False),
        (rule("get", "pods"), attributes("get", "pods", "apps"), False),
        (rule("get", "pods", "apps"), attributes("get", "pods"), False),
        (rule("*", "pods"), attributes("anything", "pods"), True),
        (rule("get", "pods", "*"), attributes("get", "pods", "apps"), True),
        (rule("get", "pods"), attributes("get", "pods/log"), False),
        (rule("get", "pods/log"), attributes("get", "pods/log"), True),
        (rule("get", "pods/log"), attributes("get", "pods"), False),
        (rule("get", "*/log"), attributes("get", "pods/log"), True),
        (rule("get", "*/log"), attributes("get", "pods/exec"), False),
        (rule("get", "*/log"), attributes("get", "pods"), False),
        (rule("get", "*"), attributes("get", "pods/log"), True),
        (rule("get", "pods/*"), attributes("get", "pods/log"), False),
        (rule("get", "pods", names="a b"), attributes("get", "pods", name="b"), True),
        (rule("get", "pods", names="a b"), attributes("get", "pods", name="c"), False),
        (rule("list", "pods", names="a"), attributes("list", "pods"), False),
        ({}, attributes("get", "pods"), False),
    ],
)
def test_rules_of_resources(document, requested, allowed):
    assert PolicyRule(document).allows(requested) is allowed
    assert Rules([PolicyRule(document)]).allow(requested) is allowed


@pytest.mark.parametrize(
    ("url", "path", "allowed"),
    [
        ("/healthz", "/healthz", True),
        ("/healthz", "/healthz/ping", False),
        ("/healthz/*", "/healthz/ping", True),
        ("/healthz/*", "/healthz", False),
        ("/healthz*", "/healthz", True),
        ("*", "/anything", True),
        ("/*/x", "/a/x", False),
    ],
)
def test_rules_of_non_resource_urls(url, path, allowed):
    document = {"verbs": ["get"], "nonResourceURLs": [url]}
    requested = Attributes(BOB, "get", path=path)
    assert PolicyRule(document).allows(requested) is allowed
    assert Rules([PolicyRule(document)]).allow(requested) is allowed
    assert not PolicyRule(document).allows(requested._replace(verb="post"))


def test_rules_of_resources_and_urls_do_not_mix():
    everything = PolicyRule({"verbs": ["*"], "nonResourceURLs": ["*"]})
    assert not everything.allows(attributes("get", "pods"))
    assert not PolicyRule(rule("*", "*", "*")).allows(Attributes(BOB, "get", path="/api"))


def test_resource_names_of_several_rules_add_up():
    rules = Rules(map(PolicyRule, (rule("get", "pods", names="a"), rule("*", "pods", names="b"))))
    assert [name for name in "abc" if rules.allow(attributes("get", "pods", name=name))] == [
        "a",
        "b",
    ]
    assert not rules.object_names("get", "", "pods", "").has(None)
    rules = Rules([*rules.rules, PolicyRule(rule("get", "*"))])
    assert rules.object_names("get", "", "pods", "").has(None)


def test_cached_results_are_limited_and_correct():
    rules = Rules([PolicyRule(rule("get", "thing-7"))])
    for _ in range(2):
        for number in range(3000):
            assert rules.allow(attributes("get", f"thing-{number}")) is (number == 7)
    assert len(rules._cached) <= 1024


def test_only_rules_that_name_a_resource_are_evaluated():
    rules = Rules(
        PolicyRule(rule("get", resource))
        for resource in ("pods", "pods/log", "*/log", "*", "nodes", "nodes/log", "pods/exec")
    )
    found = rules.for_resource("pods", "log")
    assert sorted(each.document["resources"][0] for each in found) == ["*", "*/log", "pods/log"]
    assert [each.document["resources"][0] for each in rules.for_resource("secrets", "")] == ["*"]


def test_large_results_are_not_cached():
    rules = Rules(PolicyRule(rule("get", "pods", names=f"a{number}")) for number in range(300))
    for number in range(300):
        assert rules.allow(attributes("get", "pods", name=f"a{number}"))
    assert not rules._cached
