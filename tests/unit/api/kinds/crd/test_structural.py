"""Structural schemas, validated as by apiextensions-apiserver."""

from collections import Counter

import pytest

from corral.api.cel import Program
from corral.api.kinds.crd import cel_rules
from corral.api.kinds.crd.structural import DEEPEST, check

TEXT = {"type": "string"}
INT_OR_STRING = {
    "x-kubernetes-int-or-string": True,
    "anyOf": [{"type": "integer"}, {"type": "string"}],
}


def faults(**schema):
    return {cause.field: cause.message for cause in check("schema", {"type": "object", **schema})}


def of_field(**schema):
    return {
        path.removeprefix("schema.properties[x]."): message
        for path, message in faults(properties={"x": schema}).items()
    }


@pytest.mark.parametrize(
    "schema",
    [
        TEXT,
        INT_OR_STRING,
        {**INT_OR_STRING, "pattern": "^[0-9]+%?$"},
        {
            "x-kubernetes-int-or-string": True,
            "allOf": [{"anyOf": [{"type": "integer"}, {"type": "string"}]}, {"pattern": "a"}],
        },
        {"x-kubernetes-preserve-unknown-fields": True},
        {"type": "object", "additionalProperties": {"type": "array", "items": TEXT}},
        {"type": "object", "additionalProperties": True},
        {
            "type": "object",
            "x-kubernetes-embedded-resource": True,
            "x-kubernetes-preserve-unknown-fields": True,
        },
        {
            "type": "object",
            "properties": {"a": TEXT, "b": TEXT},
            "oneOf": [{"required": ["a"]}, {"required": ["b"]}],
            "not": {"properties": {"a": {"enum": ["no"]}}},
        },
        {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
            "items": {"type": "object", "required": ["name"], "properties": {"name": TEXT}},
        },
        {"type": "integer", "default": 3, "minimum": 1},
        {"type": "string", "x-kubernetes-validations": [{"rule": "self != oldSelf"}]},
    ],
)
def test_structural_schemas_are_valid(schema):
    assert of_field(**schema) == {}


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({}, {"type": "Required value: must not be empty for specified object fields"}),
        (
            {"type": "text"},
            {
                "type": 'Unsupported value: "text": supported values: "array", "boolean", '
                '"integer", "number", "object", "string"'
            },
        ),
        ({"type": "array"}, {"items": "Required value: must be specified"}),
        (
            {"type": "array", "items": [TEXT]},
            {"items": "Forbidden: items must be a schema object and not an array"},
        ),
        (
            {"type": "object", "properties": {"a": TEXT}, "additionalProperties": TEXT},
            {
                "additionalProperties": "Forbidden: additionalProperties and properties are mutual "
                "exclusive"
            },
        ),
        (
            {"type": "string", "uniqueItems": True},
            {
                "uniqueItems": "Forbidden: uniqueItems cannot be set to true since the runtime "
                "complexity becomes quadratic"
            },
        ),
        ({"type": "string", "$ref": "#/a"}, {"$ref": "Forbidden: $ref is not supported"}),
        (
            {"type": "string", "allOf": [{"type": "string"}]},
            {"allOf[0].type": "Forbidden: must be empty to be structural"},
        ),
        (
            {"type": "object", "anyOf": [{"properties": {"a": {"minimum": 1}}}]},
            {
                "properties[a]": "Required value: because it is defined in "
                "schema.properties[x].anyOf[0].properties[a]"
            },
        ),
        (
            {"type": "integer", "default": "three"},
            {
                "default": 'Invalid value: "string": default in body must be of type integer: '
                '"string"'
            },
        ),
        (
            {"type": "object", "properties": {"a": TEXT}, "default": {"b": "x"}},
            {"default": 'Invalid value: {"b":"x"}: must not have unknown fields b'},
        ),
        (
            {"type": "array", "items": TEXT, "x-kubernetes-list-type": "map"},
            {
                "x-kubernetes-list-map-keys": "Required value: must not be empty if "
                "x-kubernetes-list-type is map",
                "items.type": 'Invalid value: "string": must be object if parent array\'s '
                "x-kubernetes-list-type is map",
            },
        ),
        (
            {"type": "string", "x-kubernetes-validations": [{"rule": "self.size()"}]},
            {
                "x-kubernetes-validations[0].rule": 'Invalid value: "self.size()": cel expression '
                "must evaluate to a bool"
            },
        ),
    ],
)
def test_other_schemas_have_the_messages_of_kubernetes(schema, expected):
    assert of_field(**schema) == expected


def test_patterns_have_the_syntax_of_go():
    (message,) = of_field(type="string", pattern="(?<!a)b").values()
    assert "must be a valid regular expression" in message


def test_rules_with_syntax_errors_are_rejected():
    (message,) = of_field(
        type="string", **{"x-kubernetes-validations": [{"rule": "self ="}]}
    ).values()
    assert message.startswith('Invalid value: "self =": compilation failed: ERROR')


RULES = "x-kubernetes-validations"
SET = {"type": "array", "x-kubernetes-list-type": "set"}
WHOLE = "must be atomic as item of a list with x-kubernetes-list-type=set"


@pytest.mark.parametrize(
    ("items", "expected"),
    [
        ({"type": "object", "x-kubernetes-map-type": "atomic"}, {}),
        ({"type": "array", "items": TEXT}, {}),
        ({"type": "object"}, {"items.x-kubernetes-map-type": f"Invalid value: null: {WHOLE}"}),
        (
            SET | {"items": TEXT},
            {"items.x-kubernetes-list-type": f'Invalid value: "set": {WHOLE}'},
        ),
        (
            TEXT | {"nullable": True},
            {"items.nullable": "Forbidden: cannot be nullable when x-kubernetes-list-type is set"},
        ),
    ],
)
def test_items_of_sets_are_atomic(items, expected):
    assert of_field(**SET, items=items) == expected


def test_defaults_must_satisfy_the_rules():
    rule = {"rule": "self < 3", "message": "too many"}
    assert of_field(type="integer", default=2, **{RULES: [rule]}) == {}
    assert of_field(type="integer", default=3, **{RULES: [rule]}) == {
        "default": 'Invalid value: "integer": too many'
    }


def test_defaults_are_validated_as_old_and_as_new_values():
    assert of_field(type="integer", default=3, **{RULES: [{"rule": "self > oldSelf"}]}) == {
        "default": 'Invalid value: "integer": failed rule: self > oldSelf'
    }
    new = {"rule": "oldSelf.hasValue()", "optionalOldSelf": True}
    assert of_field(type="integer", default=3, **{RULES: [new]}) == {
        "default": 'Invalid value: "integer": failed rule: oldSelf.hasValue()'
    }


def test_nested_defaults_share_a_limit_of_evaluations(monkeypatch):
    compiled, evaluated = Counter(), Counter()
    compile_expression, run = cel_rules.compile_expression, Program.run

    def compiling(text, variables):
        compiled[text] += 1
        return compile_expression(text, variables)

    def running(program, bindings):
        evaluated[program.text] += 1
        return run(program, bindings)

    monkeypatch.setattr(cel_rules, "compile_expression", compiling)
    monkeypatch.setattr(Program, "run", running)
    rules = [{"rule": f"self.n != {number}"} for number in range(200)]
    whole = {"type": "integer"}
    schema, value = {"type": "object", "properties": {"n": whole}, RULES: rules}, {"n": -1}
    for _ in range(DEEPEST // 4):
        schema = {"type": "object", "properties": {"x": schema | {"default": value}}}
        value = {"x": value}
    assert faults(properties={"x": schema}) == {}
    assert max(compiled.values()) == 2  # where rules are judged, and where defaults are
    assert 0 < evaluated.total() <= cel_rules.MOST_EVALUATIONS


@pytest.mark.parametrize(
    ("rule", "field", "message"),
    [
        ({"message": " "}, "message", 'Invalid value: " ": message must be non-empty if specified'),
        (
            {"rule": "true ||\n false"},
            "message",
            "Required value: message must be specified if rule contains line breaks",
        ),
        (
            {"messageExpression": " "},
            "messageExpression",
            "Required value: messageExpression must be non-empty if specified",
        ),
        (
            {"optionalOldSelf": False},
            "optionalOldSelf",
            "Invalid value: false: may not be set if oldSelf is not used in rule",
        ),
        (
            {"reason": "Wrong"},
            "reason",
            (
                'Unsupported value: "Wrong": supported values: "FieldValueDuplicate", '
                '"FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"'
            ),
        ),
    ],
)
def test_invalid_fields_of_a_rule_are_rejected(rule, field, message):
    rule = {"rule": "true", **rule}
    assert of_field(**TEXT, **{RULES: [rule]}) == {f"{RULES}[0].{field}": message}


FIELDS = {
    "a": TEXT,
    "list": {"type": "array", "items": TEXT},
    "map": {
        "type": "object",
        "additionalProperties": {"type": "object", "properties": {"b": TEXT}},
    },
}


@pytest.mark.parametrize("path", [".a", "['a']", ".list", ".map.x.b", ".map['x.y'].b", ".map['x']"])
def test_a_field_path_may_name_a_field_below(path):
    assert faults(properties=FIELDS, **{RULES: [{"rule": "true", "fieldPath": path}]}) == {}


@pytest.mark.parametrize("path", ["a", ".b", ".list[0]", ".a.b", ".map[x]", ".map.x.c", ".", ".a "])
def test_other_field_paths_are_rejected(path):
    expected = faults(properties=FIELDS, **{RULES: [{"rule": "true", "fieldPath": path}]})
    assert expected == {
        f"schema.{RULES}[0].fieldPath": f'Invalid value: "{path}": fieldPath must be a valid path'
    }


@pytest.mark.parametrize("kind", [None, "set", "atomic"])
def test_transition_rules_are_rejected_in_uncorrelatable_lists(kind):
    ruled = TEXT | {RULES: [{"rule": "self == oldSelf"}]}
    expected = {} if kind is None else {"x-kubernetes-list-type": kind}
    assert of_field(type="array", items=ruled, **expected) == {
        f"items.{RULES}[0].rule": 'Invalid value: "self == oldSelf": oldSelf cannot be used on the '
        "uncorrelatable portion of the schema within schema.properties[x]"
    }


def test_transition_rules_are_accepted_in_maps():
    item = {"type": "object", "required": ["name"], "properties": {"name": TEXT}}
    item["properties"]["size"] = TEXT | {RULES: [{"rule": "self == oldSelf"}]}
    by_name = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}
    assert of_field(type="array", items=item, **by_name) == {}
    assert of_field(type="object", additionalProperties=item) == {}


def test_the_root_is_an_object_with_standard_metadata():
    assert next(iter(check("s", {"type": "string"}))).message == (
        'Invalid value: "string": must be object at the root'
    )
    bounded = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 9}}}
    assert faults(properties={"metadata": bounded}) == {}
    bounded["properties"]["labels"] = {"type": "object"}
    assert faults(properties={"metadata": bounded}) == {
        "schema.properties[metadata]": "Forbidden: must not specify anything other than name and "
        "generateName, but metadata is implicitly specified"
    }


def test_too_deep_schemas_are_rejected():
    schema = TEXT
    for _ in range(DEEPEST * 20):
        schema = {"type": "array", "items": schema}
    assert "deeper" in faults(properties={"x": schema})["schema"]
