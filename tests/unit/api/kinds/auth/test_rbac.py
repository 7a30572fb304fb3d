"""Tests of what roles and bindings may say."""

import pytest

from corral.api.kinds.auth.rbac import (
    CLUSTER_ROLE,
    CLUSTER_ROLE_BINDING,
    ROLE,
    ROLE_BINDING,
    aggregated,
)
from corral.api.metadata import check_metadata

GROUP = "rbac.authorization.k8s.io"
READ = {"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}
URLS = {"verbs": ["get"], "nonResourceURLs": ["/x"]}


def faults(kind, document, old=None):
    document = {"metadata": {"name": "x"}, **document}
    kind.default(document)
    return [f"{cause.field}: {cause.message}" for cause in kind.validate(document, old, "").causes]


def binding(subject=None, **reference):
    subjects = [subject] if subject else []
    return {"roleRef": {"kind": "ClusterRole", "name": "view", **reference}, "subjects": subjects}


@pytest.mark.parametrize("name", ["system:node", "a.b", "Admin", "x y"])
@pytest.mark.parametrize("kind", [ROLE, CLUSTER_ROLE, ROLE_BINDING, CLUSTER_ROLE_BINDING])
def test_names_are_path_segments(kind, name):
    assert check_metadata(kind, {"metadata": {"name": name}}) == []
    assert check_metadata(kind, {"metadata": {"name": f"{name}/"}})


@pytest.mark.parametrize(
    ("kind", "rule", "expected"),
    [
        (ROLE, READ, []),
        (CLUSTER_ROLE, URLS, []),
        (ROLE, {**READ, "resources": ["a", "b"], "resourceNames": ["x"]}, []),
        (
            ROLE,
            {},
            [
                "rules[0].verbs: Required value: verbs must contain at least one value",
                (
                    "rules[0].apiGroups: Required value: resource rules must supply at least one "
                    "api group"
                ),
                (
                    "rules[0].resources: Required value: resource rules must supply at least one "
                    "resource"
                ),
            ],
        ),
        (
            ROLE,
            URLS,
            [
                (
                    'rules[0].nonResourceURLs: Invalid value: ["/x"]: namespaced rules cannot '
                    "apply to non-resource URLs"
                )
            ],
        ),
        (
            CLUSTER_ROLE,
            READ | URLS,
            [
                (
                    'rules[0].nonResourceURLs: Invalid value: ["/x"]: rules cannot apply to both '
                    "regular resources and non-resource URLs"
                )
            ],
        ),
    ],
)
def test_rules_are_validated(kind, rule, expected):
    assert faults(kind, {"rules": [rule]}) == expected


def test_aggregation_rules_need_selectors():
    where = "aggregationRule.clusterRoleSelectors"
    assert faults(CLUSTER_ROLE, {"aggregationRule": {}}) == [
        (
            f"{where}: Required value: at least one clusterRoleSelector required if "
            "aggregationRule is non-nil"
        )
    ]
    wrong = {"clusterRoleSelectors": [{"matchLabels": {"a b": ""}}]}
    assert faults(CLUSTER_ROLE, {"aggregationRule": wrong})[0].startswith(
        f"{where}[0].matchLabels: Invalid value"
    )


def test_api_groups_of_references_have_defaults():
    document = binding({"kind": "User", "name": "bob"})
    ROLE_BINDING.default(document)
    assert document["roleRef"]["apiGroup"] == GROUP
    assert document["subjects"] == [{"kind": "User", "name": "bob", "apiGroup": GROUP}]
    document = binding({"kind": "ServiceAccount", "name": "robot"})
    ROLE_BINDING.default(document)
    assert "apiGroup" not in document["subjects"][0]


@pytest.mark.parametrize(
    ("kind", "document", "expected"),
    [
        (ROLE_BINDING, binding(kind="Role"), ""),
        (ROLE_BINDING, binding({"kind": "ServiceAccount", "name": "robot"}), ""),
        (
            ROLE_BINDING,
            binding(kind="Pod"),
            'roleRef.kind: Unsupported value: "Pod": supported values: "ClusterRole", "Role"',
        ),
        (
            CLUSTER_ROLE_BINDING,
            binding(kind="Role"),
            'roleRef.kind: Unsupported value: "Role": supported values: "ClusterRole"',
        ),
        (
            ROLE_BINDING,
            binding(apiGroup="x"),
            f'roleRef.apiGroup: Unsupported value: "x": supported values: "{GROUP}"',
        ),
        (ROLE_BINDING, binding(name=""), "roleRef.name: Required value"),
        (ROLE_BINDING, binding(name="a/b"), "roleRef.name: Invalid value"),
        (ROLE_BINDING, binding({"kind": "User", "name": ""}), "subjects[0].name: Required value"),
        (
            ROLE_BINDING,
            binding({"kind": "Robot", "name": "x"}),
            (
                'subjects[0].kind: Unsupported value: "Robot": supported values: "Group", '
                '"ServiceAccount", "User"'
            ),
        ),
        (
            ROLE_BINDING,
            binding({"kind": "ServiceAccount", "name": "x", "apiGroup": "y"}),
            'subjects[0].apiGroup: Unsupported value: "y"',
        ),
        (
            CLUSTER_ROLE_BINDING,
            binding({"kind": "ServiceAccount", "name": "x"}),
            "subjects[0].namespace: Required value",
        ),
    ],
)
def test_bindings_are_validated(kind, document, expected):
    found = faults(kind, document)
    assert found[:1] == [] if not expected else found[0].startswith(expected), found


def test_the_role_of_a_binding_is_immutable():
    old = binding() | {"metadata": {"name": "x"}}
    ROLE_BINDING.default(old)
    assert faults(ROLE_BINDING, binding({"kind": "User", "name": "bob"}), old) == []
    assert faults(ROLE_BINDING, binding(name="edit"), old) == [
        (
            f'roleRef: Invalid value: {{"APIGroup":"{GROUP}","Kind":"ClusterRole","Name":"edit"}}: '
            "cannot change roleRef"
        )
    ]


def test_aggregated_rules_are_sorted_and_unique():
    def part(name, *rules, **labels):
        return {"metadata": {"name": name, "labels": labels}, "rules": list(rules)}

    selectors = [{"matchLabels": {"a": "b"}}, {"matchLabels": {"c": "d"}}]
    whole = part("whole", URLS, a="b") | {"aggregationRule": {"clusterRoleSelectors": selectors}}
    other = READ | {"verbs": ["list"]}
    parts = [part("z", READ, a="b"), part("y", other, READ, c="d"), part("x", URLS, c="e"), whole]
    assert aggregated(whole, parts) == [other, READ]
    assert aggregated(part("plain"), parts) == []


def test_aggregation_does_not_compare_all_pairs():
    compared = []

    class Rule(dict):
        __hash__ = None

        def __eq__(self, other):
            compared.append(other)
            return super().__eq__(other)

    rules = [Rule(URLS, nonResourceURLs=[f"/{number}"]) for number in range(100)]
    again = [Rule(reversed(rule.items())) for rule in rules]
    whole = {
        "metadata": {"name": "whole"},
        "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"part": "yes"}}]},
    }
    parts = [
        {"metadata": {"name": name, "labels": {"part": "yes"}}, "rules": given}
        for name, given in (("a", rules), ("b", again))
    ]
    gathered = aggregated(whole, parts)
    assert not compared
    assert gathered == rules
