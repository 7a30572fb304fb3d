"""Cost limits of CEL rules in definitions."""

import pytest

from corral.api.kinds.crd import cel_rule_costs
from corral.api.kinds.crd.cel_rule_checks import check_rules

TEXT = {"type": "string"}
TEXTS = {"type": "array", "items": TEXT}
FEW = TEXTS | {"maxItems": 100}
LARGE = {
    "type": "object",
    "required": ["a"],
    "properties": {
        "a": {
            "type": "object",
            "required": [f"{'x' * 60}{number}" for number in range(10)],
            "properties": {f"{'x' * 60}{number}": TEXT for number in range(10)},
        },
        "names": TEXTS,
    },
}
SCHEMA = {
    "type": "object",
    "properties": {
        "texts": TEXTS,
        "few": FEW,
        "map": {"type": "object", "additionalProperties": TEXT},
        "inner": {"type": "array", "items": {"type": "object", "properties": {"names": TEXTS}}},
        "few_inner": {
            "type": "array",
            "maxItems": 5,
            "items": {"type": "object", "properties": {"names": TEXTS}},
        },
        "large": {"type": "array", "items": LARGE},
    },
}


def messages(**rule):
    return [
        (cause.field, cause.message)
        for cause in check_rules("rules", SCHEMA | {"x-kubernetes-validations": [rule]})
    ]


@pytest.mark.parametrize(
    "rule",
    [
        "self.texts.all(x, self.texts.all(y, x == y))",
        "self.texts.exists_one(x, self.map.exists(y, x == y))",
        "self.inner.all(x, x.names.all(y, y != ''))",
        "has(self.texts) ? self.texts.all(x, self.texts.exists(y, x == y)) : true",
        "size(self.texts.filter(x, self.texts.exists(y, x == y))) > 1",
        "self.few.all(x, self.texts.all(y, self.texts.all(z, z == y)))",
        "self.texts.all(x, oldSelf.texts.exists(y, x == y))",
    ],
)
def test_unbounded_nested_loops_exceed_the_cost_limit(rule):
    assert messages(rule=rule) == [("rules[0].rule", f"Forbidden: {cel_rule_costs.EXCEEDED}")]


@pytest.mark.parametrize(
    "rule",
    [
        "self.texts.all(x, x != '')",
        "self.texts.all(x, x in self.few)",
        "self.few.all(x, self.few.all(y, x == y))",
        "self.few.all(x, self.texts.all(y, x == y))",
        "self.few_inner.all(x, x.names.all(y, y != ''))",
        "self.texts.all(x, ['a', 'b'].all(y, x == y))",
        "self.texts.all(x, cel.bind(two, ['a', 'b'], two.exists(y, x == y)))",
        "cel.bind(self_, ['a'], self_.all(x, self_.all(y, x == y)))",
        "self.large.all(x, self.large.all(y, x.a == y.a))",
        "has(self.few) ? self.few.all(x, x != '') : self.texts.all(x, x != '')",
    ],
)
def test_bounded_or_single_loops_are_accepted(rule):
    assert messages(rule=rule) == []


def test_a_message_expression_has_its_own_cost():
    text = "self.texts.map(x, self.texts.map(y, y).join(x)).join('')"
    assert messages(rule="true", messageExpression=text) == [
        (
            "rules[0].messageExpression",
            f"Forbidden: {cel_rule_costs.EXCEEDED.replace('rule', 'messageExpression', 1)}",
        )
    ]
