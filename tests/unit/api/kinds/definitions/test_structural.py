"""Schemas of definitions, judged as apiextensions-apiserver judges them."""

import pytest

from corral.api.kinds.definitions.structural import DEEPEST, check

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
def test_what_is_structural_is_well(schema):
    assert of_field(**schema) == {}


@pytest.mark.parametrize(
    ("schema", "wrong"),
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
def test_what_is_not_is_told_in_the_real_servers_words(schema, wrong):
    assert of_field(**schema) == wrong


def test_patterns_are_read_as_go_reads_them():
    (message,) = of_field(type="string", pattern="(?<!a)b").values()
    assert "must be a valid regular expression" in message


def test_rules_that_cannot_be_read_are_refused():
    (message,) = of_field(
        type="string", **{"x-kubernetes-validations": [{"rule": "self ="}]}
    ).values()
    assert message.startswith('Invalid value: "self =": compilation failed: ERROR')


def test_the_root_is_an_object_whose_metadata_is_kubernetes_own():
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


def test_what_lies_too_deep_is_not_walked():
    schema = TEXT
    for _ in range(DEEPEST * 20):
        schema = {"type": "array", "items": schema}
    assert "deeper" in faults(properties={"x": schema})["schema"]
