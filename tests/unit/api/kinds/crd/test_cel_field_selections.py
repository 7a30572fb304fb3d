"""CEL rules that select undefined fields are rejected with their definition."""

import pytest

from corral.api.kinds.crd.structural import check

TEXT = {"type": "string"}
DISK = {"type": "object", "properties": {"name": TEXT, "tags": {"type": "array", "items": TEXT}}}
OPEN = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
SPEC = {
    "type": "object",
    "properties": {
        "name": TEXT,
        "x-y": {"type": "integer"},
        "any": {"x-kubernetes-preserve-unknown-fields": True},
        "port": {"x-kubernetes-int-or-string": True},
        "disks": {"type": "array", "items": DISK, "maxItems": 8},
        "labels": {"type": "object", "additionalProperties": DISK},
        "open": OPEN,
        "pod": {**OPEN, "x-kubernetes-embedded-resource": True},
    },
}


def fault(rule, **expected):
    schema = {
        "type": "object",
        "properties": {"spec": SPEC, "metadata": {"type": "object"}},
        "x-kubernetes-validations": [{"rule": rule, "message": "no", **expected}],
    }
    return "; ".join(cause.message for cause in check("schema", schema))


@pytest.mark.parametrize(
    "rule",
    [
        "self.spec.name == 'a' && self.spec.x__dash__y == 1",
        "self.spec.port == 1 || self.spec.port == '1'",
        "self.kind == '' && self.metadata.name == '' && self.metadata.generateName == ''",
        "self.spec.pod.kind == '' && self.spec.pod.metadata.name == ''",
        "self.spec.disks.all(d, d.name != '' && d.tags.exists(t, t.matches('a')))",
        "self.spec.labels.all(k, self.spec.labels[k].name == k)",
        "self.spec.labels.all(k, v, v.name == k) && self.spec.labels.one.name == ''",
        "self.spec.?disks.orValue([]).map(d, d.tags).all(t, t.size() > 0)",
        "self.spec.disks.sort().all(d, d.name == '') && {'k': self.spec}.k.name == ''",
        "{'a': 1}.a == 1 && dyn(self).any == 1",
    ],
)
def test_rules_may_select_existing_fields(rule):
    assert fault(rule) == ""


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ("self.spec.nope == 'a'", "ERROR: <input>:1:10: undefined field 'nope'"),
        ("has(self.status)", "undefined field 'status'"),
        ("self.metadata.labels.a == ''", "undefined field 'labels'"),
        ("self.spec.any.x == 1", "undefined field 'any'"),
        ("self.spec.open.x == 1", "undefined field 'x'"),
        ("self.spec.pod.spec == 1", "undefined field 'spec'"),
        ("self.spec.name.x == 1", "type 'string' does not support field selection"),
        ("self.spec.disks.all(d, d.nope == '')", "undefined field 'nope'"),
        ("self.spec.disks[0].nope == ''", "undefined field 'nope'"),
        ("self.spec.disks.filter(d, d.name == '').all(e, e.nope)", "undefined field 'nope'"),
        ("self.spec.disks.map(d, d.tags).all(t, t.x == 1)", "type 'list' does not support"),
        ("self.spec.labels.all(k, v, v.nope == k)", "undefined field 'nope'"),
        ("self.spec.labels['a'].nope == ''", "undefined field 'nope'"),
        ("self.spec.?nope.hasValue()", "undefined field 'nope'"),
        ("self.spec.?disks.orValue([]).all(d, d.nope)", "undefined field 'nope'"),
        ("self.spec.?disks.optMap(d, d[0].nope).orValue(true)", "undefined field 'nope'"),
        ("cel.bind(s, self.spec, s.nope == 1)", "undefined field 'nope'"),
        ("self.spec.disks.slice(0, 1)[0].nope == ''", "undefined field 'nope'"),
        ("self.spec.disks.distinct().all(d, d.nope)", "undefined field 'nope'"),
        ("self.spec.disks.reverse().all(d, d.nope)", "undefined field 'nope'"),
        ("{'k': self.spec}.k.nope == 1", "undefined field 'nope'"),
        ("oldSelf.spec.nope == self.spec.name", "undefined field 'nope'"),
    ],
)
def test_a_rule_that_selects_an_undefined_field_is_rejected(rule, expected):
    assert expected in fault(rule)


def test_a_message_expression_that_selects_an_undefined_field_is_rejected():
    assert "undefined field 'nope'" in fault("true", messageExpression="self.spec.nope")


def test_a_rule_with_an_optional_old_value_is_checked():
    rule = "!oldSelf.hasValue() || self.spec.nope == 1"
    assert "undefined field 'nope'" in fault(rule, optionalOldSelf=True)
    rule = "oldSelf.optMap(o, o.spec.nope == 1).orValue(true)"
    assert "undefined field 'nope'" in fault(rule, optionalOldSelf=True)


@pytest.mark.parametrize(
    "rule",
    [
        "oldSelf.hasValue() // was there",
        "oldSelf.?spec.?name.orValue('') == self.spec.name // is as it was",
    ],
)
def test_a_rule_may_use_only_the_optional_old_value(rule):
    assert fault(rule, optionalOldSelf=True) == ""


@pytest.mark.parametrize(
    ("rule", "expected", "shown"),
    [
        ("self.spec.name != '') || (true", "1:21: Syntax error", "self.spec.name != '') || (true"),
        ("true || size(oldSelves) == 0", "1:14: undeclared reference to 'oldSelves'", "true ||"),
        ("true ||\n  self.spec.nope == 1", "2:12: undefined field 'nope'", "  self.spec.nope == 1"),
        (
            "[oldSelf].size() == 1",
            "1:1: an optional value cannot be a result",
            "[oldSelf].size() == 1",
        ),
        ("self.spec.x__dash__y > 'a'", "1:22: found no matching overload", "self.spec.x__dash__y"),
        ("oldSelf.hasValue() > 1", "1:20: found no matching overload", "oldSelf.hasValue() > 1"),
    ],
)
def test_errors_show_the_rule_as_written(rule, expected, shown):
    found = fault(rule, optionalOldSelf=True)
    assert f"ERROR: <input>:{expected}" in found
    assert f"\n | {shown}" in found


TIMES = {"type": "string", "format": "date-time"}
SIZED = {
    "type": "object",
    "properties": {
        "name": TEXT,
        "replicas": {"type": "integer"},
        "ready": {"type": "boolean"},
        "ratio": {"type": "number"},
        "created": TIMES,
        "names": {"type": "array", "items": TEXT},
        "labels": {"type": "object", "additionalProperties": TEXT},
        "maybe": {"type": "string", "nullable": True},
        "port": {"x-kubernetes-int-or-string": True},
        "disks": {
            "type": "array",
            "items": {"type": "object", "properties": {"size": {"type": "integer"}}},
        },
    },
}


def misfit(rule, schema=SIZED, **expected):
    schema = {**schema, "x-kubernetes-validations": [{"rule": rule, "message": "no", **expected}]}
    whole = {"type": "object", "properties": {"spec": schema}}
    return "; ".join(cause.message for cause in check("schema", whole))


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        (
            "self.replicas > 'a'",
            "1:15: found no matching overload for '_>_' applied to '(int, string)'",
        ),
        (
            "self.name == 5",
            "1:11: found no matching overload for '_==_' applied to '(string, int)'",
        ),
        ("self.ready || self.name", "applied to '(bool, string)'"),
        ("self.names.all(n, n > 5)", "applied to '(string, int)'"),
        ("self.names.all(name, name > 5)", "applied to '(string, int)'"),
        ("self.disks.all(d, d.size.startsWith('a'))", "applied to '(int, string)'"),
        ("self.disks[0].size > 0 && self.labels['a'] > 0", "applied to '(string, int)'"),
        ("5 in self.names", "applied to '(int, list(string))'"),
        ("self.created > '2026-01-01T00:00:00Z'", "'(timestamp, string)'"),
        ("has(self.name) && self.name - 1 == 0", "applied to '(string, int)'"),
        ("self.name == null", "applied to '(string, null)'"),
        ("self.replicas + 1.5 > 2.0", "applied to '(int, double)'"),
        ("!has(oldSelf.name) || self.replicas == oldSelf.name", "applied to '(int, string)'"),
        ("self.replicas ==\n  oldSelf.name", "1:15: found no matching overload"),
        ("cel.bind(n, self.name, n > 5)", "applied to '(string, int)'"),
        ("quantity(self.replicas).sign() > 0", "applied to '(int)'"),
    ],
)
def test_mismatched_types_are_rejected_with_the_definition(rule, expected):
    found = misfit(rule)
    assert found.startswith(f'Invalid value: "{rule}": compilation failed: ERROR: <input>:')
    assert expected in found
    assert f" | {rule.splitlines()[0]}\n" in found, "the text is shown as it was written"


@pytest.mark.parametrize(
    "rule",
    [
        "self.replicas < 10u && uint(self.replicas) >= self.replicas",
        "self.replicas < 1.5 && self.ratio > 1 && self.ratio >= self.replicas",
        "self.port == 1 || self.port == '1' || self.maybe == null",
        "self.names == [] && self.names + ['a'] != [] && self.labels == {}",
        "self.names.all(n, n in self.labels && self.labels[n] == self.name)",
        "self.disks.map(d, d.size).sum() > 1 && self.disks.all(d, d.size > 0 && has(d.size))",
        "self.disks.all(d, d.size > 0) && self.names.all(d, d.size() > 0)",
        "self.?name.orValue('a') == 'a' && dyn(self.replicas) == 'a'",
        "timestamp(self.created) == self.created && self.created.getFullYear() > 2000",
        "'%s %d'.format([self.name, self.replicas]) != '' && math.greatest(self.replicas, 1) > 0",
        "type(self.name) == string && string(self.replicas) == self.name && size(self.names) > 0",
        "quantity(self.name).isGreaterThan(quantity('1')) && isQuantity(self.name)",
        "self.labels.a == 'b' && has(self.labels.b) && !('c' in self.labels)",
        "self . name == 'a' && self.\n  name == 'b'",
        "(self.ready ? self.replicas : 0) == 0 && self.name.split(',')[0] == ''",
        "self.names.sort() == self.names && self.names.isSorted() && self.names.max() == 'a'",
    ],
)
def test_matching_or_dynamic_types_are_accepted(rule):
    assert misfit(rule) == ""


@pytest.mark.parametrize(
    "rule",
    ["oldSelf.orValue(self).replicas == self.replicas", "oldSelf.?name.orValue('') == self.name"],
)
def test_an_optional_old_value_has_a_dynamic_type(rule):
    assert misfit(rule, optionalOldSelf=True) == ""


def test_a_rule_evaluates_to_a_bool():
    expected = "cel expression must evaluate to a bool"
    for rule in ("self.replicas", "self.name", "self.created", "self.names", "oldSelf.labels"):
        assert misfit(rule) == f'Invalid value: "{rule}": {expected}'
    assert misfit("self.ready") == misfit("self.ready || oldSelf.ready") == ""
    message = {"messageExpression": "self.replicas"}
    assert misfit("self.ready", **message).endswith("messageExpression must evaluate to a string")
    assert misfit("self.ready", messageExpression="self.name") == ""


def test_self_has_the_type_of_its_schema():
    assert "applied to '(int, string)'" in misfit("self > 'a'", {"type": "integer"})
    assert "'(list(string), int)'" in misfit("self == 5", {"type": "array", "items": TEXT})
