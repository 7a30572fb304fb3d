"""Whatever a schema says, and whatever is sent to it: nothing breaks."""

from hypothesis import given, settings, strategies as st
from tests.unit.api.kinds.crd.test_custom_kinds import definition, version

from corral.api.kinds.crd import structural
from corral.api.kinds.crd.cel_rules import RULES, Rules
from corral.api.kinds.crd.custom_kinds import kind_of
from corral.api.kinds.crd.definition import DEFINITION
from corral.api.schema import schema_for

NAMES = st.sampled_from(["a", "b.c", "metadata", "kind", "namespace", "x-y", ""])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.floats(-2, 2) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=8,
)
TYPES = st.sampled_from(["object", "array", "string", "integer", "number", "boolean", "null", ""])


def words(inner):
    return st.fixed_dictionaries(
        {"type": TYPES},
        optional={
            **dict.fromkeys(("properties",), st.dictionaries(NAMES, inner, max_size=3)),
            **dict.fromkeys(("allOf", "anyOf", "oneOf"), st.lists(inner, max_size=2)),
            **dict.fromkeys(("items", "additionalProperties"), inner | JSON),
            **dict.fromkeys(("minimum", "maximum", "multipleOf"), st.integers(-2, 2)),
            **dict.fromkeys(("minLength", "maxItems", "maxProperties"), st.integers(-1, 2)),
            **dict.fromkeys(
                (
                    "nullable",
                    "exclusiveMinimum",
                    "x-kubernetes-preserve-unknown-fields",
                    "x-kubernetes-embedded-resource",
                    "x-kubernetes-int-or-string",
                ),
                st.booleans(),
            ),
            "not": inner,
            "enum": st.lists(JSON, max_size=3),
            "default": JSON,
            "format": st.sampled_from(["date", "ipv4", "uuid", "byte", "quantity", "json-schema"]),
            "pattern": st.sampled_from(["^a", "(", "a{1,3}", "\\d"]),
            "required": st.lists(NAMES, max_size=2),
            "x-kubernetes-list-type": st.sampled_from(["set", "map", "atomic", "bag"]),
            "x-kubernetes-list-map-keys": st.lists(NAMES, max_size=2),
            "x-kubernetes-map-type": st.sampled_from(["atomic", "granular"]),
            "x-kubernetes-validations": st.just([{"rule": "self == oldSelf || has(self.a)"}]),
        },
    )


SCHEMAS = st.recursive(words(st.just({"type": "string"})), words, max_leaves=6)
PLAIN = st.recursive(
    st.sampled_from(
        [
            {"type": "string", "maxLength": 2},
            {"type": "integer", "default": 1, "minimum": 0},
            {"type": "number", "nullable": True, "multipleOf": 0.5},
            {"x-kubernetes-int-or-string": True},
            {"x-kubernetes-preserve-unknown-fields": True},
        ]
    ),
    lambda inner: (
        st.builds(lambda items: {"type": "array", "items": items}, inner)
        | st.builds(lambda rest: {"type": "object", "additionalProperties": rest}, inner)
        | st.builds(
            lambda fields: {
                "type": "object",
                "properties": fields,
                "anyOf": [{"required": ["a"]}, {"minProperties": 1}],
                "x-kubernetes-validations": [{"rule": "size(self) < 3"}],
            },
            st.dictionaries(NAMES.filter(lambda name: name != "metadata"), inner, max_size=3),
        )
    ),
    max_leaves=5,
)
"""Schemas that are well."""


def established(schema):
    return definition(version(schema={"openAPIV3Schema": schema}))


def use(schema, spec, old):
    kind = kind_of(established(schema))
    document = {"metadata": {"name": "x"}, **spec}
    ready = schema_for(kind, "v1")
    ready.prune(document)
    ready.complete(document)
    if not ready.check(document):
        kind.validate(document, None, "me")
        kind.validate(document, old, "me")


@settings(max_examples=100)
@given(schema=SCHEMAS, value=JSON)
def test_accepted_schemas_can_be_used(schema, value):
    document = established({"type": "object", "properties": {"spec": schema}})
    document |= {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition"}
    schema_for(DEFINITION).prune(document)
    if schema_for(DEFINITION).check(document):
        return
    expected = document["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    if not list(structural.check("schema", expected)):
        use(expected, {"spec": value}, {"spec": value})


@settings(max_examples=100)
@given(fields=st.dictionaries(NAMES.filter(lambda name: name != "metadata"), PLAIN), value=JSON)
def test_any_document_can_be_checked(fields, value):
    schema = {"type": "object", "properties": {"spec": {"type": "object", "properties": fields}}}
    assert list(structural.check("schema", schema)) == []
    use(schema, {"spec": value}, {"spec": {}})
    use(schema, {"spec": dict.fromkeys(fields, value)}, {"spec": value})


def test_the_rules_of_one_object_share_a_cost_limit():
    texts = {"type": "array", "items": {"type": "string"}}
    rule = {"rule": "self.l.all(x, self.l.all(y, x != y + 'q'))"}
    schema = {"type": "object", "properties": {"l": texts}, RULES: [rule] * 200}
    assert Rules(schema).check({"l": ["a"] * 10}, None) == ([], [])
    (cause,), _ = Rules(schema).check({"l": ["a" * 100] * 90}, None)
    assert "running out of cost budget" in cause.message
    assert Rules(schema | {RULES: [rule]}).check({"l": ["a" * 100] * 90}, None) == ([], [])
