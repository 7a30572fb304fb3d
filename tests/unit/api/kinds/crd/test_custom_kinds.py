"""Objects of custom kinds: pruning, defaults, validation, columns."""

import pytest

from corral.api.kinds.crd import cel_rules
from corral.api.kinds.crd.custom_kinds import kind_of
from corral.api.kinds.table import KindTable, preference
from corral.api.schema import ratcheting, schema_for
from corral.api.schema.ratcheting import introduced

RULES = "x-kubernetes-validations"
LIST_TYPE = "x-kubernetes-list-type"
BY_NAME = {LIST_TYPE: "map", "x-kubernetes-list-map-keys": ["name"]}
TEXT = {"type": "string"}
INTEGER = {"type": "integer"}


def version(name="v1", storage=True, served=True, spec=None, **more):
    schema = {"type": "object", "properties": {"spec": spec or {"type": "object"}}}
    return {
        "name": name,
        "served": served,
        "storage": storage,
        "schema": {"openAPIV3Schema": schema},
        **more,
    }


def definition(*versions):
    names = {"plural": "herds", "kind": "Herd", "singular": "herd", "listKind": "Herds"}
    return {
        "metadata": {"name": "herds.farm.example.com", "generation": 1},
        "spec": {
            "group": "farm.example.com",
            "scope": "Namespaced",
            "names": names,
            "versions": list(versions),
        },
        "status": {
            "acceptedNames": names,
            "conditions": [{"type": "Established", "status": "True"}],
        },
    }


def of(spec, **properties):
    kind = kind_of(definition(version(spec={"type": "object", **spec, "properties": properties})))
    assert kind is not None
    return kind


def taken(kind, spec):
    """The spec as it would be stored, and what is wrong with it."""
    document = {"metadata": {"name": "cows"}, "spec": spec}
    schema = schema_for(kind, "v1")
    unknown = schema.prune(document)
    schema.complete(document)
    return document["spec"], unknown, [cause.message for cause in schema.check(document)]


def messages(kind, spec, old=None):
    document = {"spec": spec}
    verdict = kind.validate(document, None if old is None else {"spec": old}, "me")
    return [(cause.field, cause.message) for cause in verdict.causes], verdict.warnings


def test_unknown_fields_are_pruned_unless_preserved():
    open_object = {
        "type": "object",
        "x-kubernetes-preserve-unknown-fields": True,
        "properties": {"inner": {"type": "object", "properties": {"a": TEXT}}},
    }
    kind = of({}, kept=open_object, by_name={"type": "object", "additionalProperties": TEXT})
    spec = {
        "kept": {"any": {"thing": 1}, "inner": {"a": "x", "b": 1}},
        "by_name": {"x": "y"},
        "gone": 1,
    }
    assert taken(kind, spec) == (
        {"kept": {"any": {"thing": 1}, "inner": {"a": "x"}}, "by_name": {"x": "y"}},
        ["spec.kept.inner.b", "spec.gone"],
        [],
    )


def test_defaults_apply_to_missing_fields_also_in_list_items():
    item = {"type": "object", "properties": {"port": {"type": "integer", "default": 80}}}
    kind = of(
        {"required": ["size"]},
        size={"type": "integer", "default": 3},
        null={"type": "string", "default": "x"},
        nullable={"type": "string", "default": "x", "nullable": True},
        ports={"type": "array", "items": item},
    )
    spec = {"ports": [{}, {"port": 1}], "null": None, "nullable": None}
    assert taken(kind, spec)[0] == {
        "ports": [{"port": 80}, {"port": 1}],
        "size": 3,
        "null": "x",
        "nullable": None,
    }


def test_defaults_are_not_shared_between_objects():
    kind = of({}, list={"type": "array", "items": TEXT, "default": []})
    taken(kind, {})[0]["list"].append("x")
    assert taken(kind, {})[0] == {"list": []}


@pytest.mark.parametrize(
    ("schema", "value", "message"),
    [
        (
            {"type": "object", "oneOf": [{"required": ["a"]}, {"required": ["b"]}]},
            {},
            (
                'Invalid value: "": "spec.x" must validate one and only one schema (oneOf). '
                "Found none valid"
            ),
        ),
        (
            {"type": "string", "anyOf": [{"pattern": "^a"}, {"maxLength": 2}]},
            "bcd",
            'Invalid value: "": "spec.x" must validate at least one schema (anyOf)',
        ),
        (
            {"type": "integer", "not": {"enum": [3]}},
            3,
            'Invalid value: "": "spec.x" must not validate the schema (not)',
        ),
        (
            {"type": "integer", "allOf": [{"minimum": 3}]},
            2,
            "Invalid value: 2: spec.x in body should be greater than or equal to 3",
        ),
        (
            {"type": "integer", "minimum": 3, "exclusiveMinimum": True},
            3,
            "Invalid value: 3: spec.x in body should be greater than 3",
        ),
        (
            {"type": "number", "multipleOf": 0.5},
            0.7,
            "Invalid value: 0.7: spec.x in body should be a multiple of 0.5",
        ),
        (
            {"type": "string", "format": "ipv4"},
            "::1",
            'Invalid value: "::1": spec.x in body must be of type ipv4: "::1"',
        ),
        (
            {"type": "string"},
            1,
            'Invalid value: "integer": spec.x in body must be of type string: "integer"',
        ),
        (
            {"type": "object", "maxProperties": 1, "additionalProperties": TEXT},
            {"a": "", "b": ""},
            "Too many: 2: must have at most 1 items",
        ),
        (
            {"type": "string", "pattern": "^(a+)+$"},
            "a" * 50_000 + "b",
            None,
        ),
    ],
)
def test_invalid_values_have_the_messages_of_kubernetes(schema, value, message):
    _, _, messages = taken(of({}, x=schema), {"x": value})
    assert messages
    if message is not None:
        assert messages[0] == message


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"type": "integer", "minLength": 3, "maxLength": 0, "maxItems": 0, "maxProperties": 0}, 7),
        ({"type": "boolean", "minimum": 2, "multipleOf": 3, "minItems": 1}, True),
        ({"type": "string", "minimum": 2, "minItems": 9, "maxProperties": 0}, "text"),
        ({"type": "array", "items": {"type": "string"}, "minimum": 2, "maxLength": 0}, ["text"]),
        ({"x-kubernetes-int-or-string": True, "minLength": 3, "maxLength": 4, "maxItems": 0}, 7),
        ({"x-kubernetes-int-or-string": True, "maximum": 3, "maxItems": 0}, "text"),
    ],
)
def test_keywords_of_other_types_are_ignored(schema, value):
    kind = of({}, x=schema)
    assert taken(kind, {"x": value}) == ({"x": value}, [], [])


def test_int_or_string_accepts_both():
    alternatives = [{"type": "integer"}, {"type": "string"}]
    kind = of({}, x={"x-kubernetes-int-or-string": True, "anyOf": alternatives, "pattern": "^5"})
    assert taken(kind, {"x": 80})[2] == []
    assert taken(kind, {"x": "50%"})[2] == []
    assert taken(kind, {"x": "80%"})[2] != []


def test_duplicates_in_sets_and_maps_are_rejected():
    item = {"type": "object", "properties": {"name": TEXT, "port": INTEGER}}
    kind = of(
        {},
        set={"type": "array", "x-kubernetes-list-type": "set", "items": TEXT},
        map={"type": "array", **BY_NAME, "items": item},
    )
    spec = {"set": ["a", "b", "a", "a"], "map": [{"name": "x", "port": 1}, {"name": "x"}]}
    assert messages(kind, spec)[0] == [
        ("spec.set[2]", 'Duplicate value: "a"'),
        ("spec.map[1]", 'Duplicate value: {"name":"x"}'),
    ]


def ruled(*rules, **properties):
    return of({"x-kubernetes-validations": list(rules)}, **properties)


def test_values_that_violate_rules_are_rejected():
    kind = ruled(
        {"rule": "self.least <= self.most"},
        {"rule": "self.most < 10", "message": "no more than nine", "fieldPath": ".most"},
        {"rule": "self.least > 0", "messageExpression": "'least is %d'.format([self.least])"},
        least=INTEGER,
        most=INTEGER,
    )
    assert messages(kind, {"least": 1, "most": 2}) == ([], [])
    assert messages(kind, {"least": -1, "most": 12})[0] == [
        ("spec.most", 'Invalid value: "object": no more than nine'),
        ("spec", 'Invalid value: "object": least is -1'),
    ]
    assert messages(kind, {"least": 3, "most": 2})[0] == [
        ("spec", 'Invalid value: "object": failed rule: self.least <= self.most')
    ]
    assert messages(kind, {"most": 2})[0][0] == (
        "spec",
        'Invalid value: "object": no such key: least evaluating rule: self.least <= self.most',
    )


def test_a_rule_reports_its_field_path():
    rule = {"rule": "false", "message": "no", "fieldPath": "['x-large'].sizes['a.b']"}
    inner = {
        "type": "object",
        "properties": {"sizes": {"type": "object", "additionalProperties": INTEGER}},
    }
    kind = ruled(rule, **{"x-large": inner})
    assert messages(kind, {})[0] == [("spec.x-large.sizes[a.b]", 'Invalid value: "object": no')]


def test_a_transition_rule_is_not_evaluated_for_new_values():
    kind = of({}, name=TEXT | {"x-kubernetes-validations": [{"rule": "self == oldSelf"}]})
    assert messages(kind, {"name": "a"}) == ([], [])
    assert messages(kind, {"name": "a"}, {"name": "a"}) == ([], [])
    assert messages(kind, {"name": "b"}, {"name": "a"})[0] == [
        ("spec.name", 'Invalid value: "string": failed rule: self == oldSelf')
    ]


def test_a_rule_may_have_an_optional_old_value():
    rule = {"rule": "!oldSelf.hasValue() || oldSelf.value() <= self", "optionalOldSelf": True}
    kind = of({}, size=INTEGER | {"x-kubernetes-validations": [rule]})
    assert messages(kind, {"size": 1}) == ([], [])
    assert messages(kind, {"size": 1}, {"size": 2})[0] != []


def test_an_unchanged_violation_is_a_warning():
    kind = ruled({"rule": "self.size > 1"}, size=INTEGER)
    assert messages(kind, {"size": 0}, {"size": 0}) == (
        [],
        ['spec: Invalid value: "object": failed rule: self.size > 1'],
    )
    assert messages(kind, {"size": 1}, {"size": 0})[0] != []


@pytest.mark.parametrize(
    ("schema", "before", "after", "kept"),
    [
        ({"type": "integer"}, 0, 0, True),
        ({"type": "object", "additionalProperties": INTEGER}, {"a": 0}, {"a": 0, "b": 1}, True),
        ({"type": "object", "additionalProperties": INTEGER}, {"a": 0}, {"b": 0}, False),
        ({"type": "array", "items": INTEGER}, [0], [0, 2], False),
        ({"type": "array", "items": INTEGER}, [0], [0], True),
        ({"type": "array", "items": INTEGER}, [0, 2], [2, 0], False),
        ({"type": "array", "items": INTEGER, LIST_TYPE: "atomic"}, [0], [0, 2], False),
        ({"type": "array", "items": INTEGER, LIST_TYPE: "atomic"}, [0], [0], True),
        ({"type": "array", "items": INTEGER, LIST_TYPE: "set"}, [0], [0, 2], False),
        (
            {"type": "array", "items": {"type": "object", "properties": {"size": INTEGER}}},
            [{"size": 0, "name": "a"}],
            [{"size": 0, "name": "b"}],
            False,
        ),
        (
            {
                "type": "array",
                **BY_NAME,
                "items": {"type": "object", "properties": {"name": TEXT, "size": INTEGER}},
            },
            [{"name": "a", "size": 0}],
            [{"name": "b", "size": 2}, {"name": "a", "size": 0}],
            True,
        ),
        (
            {
                "type": "array",
                **BY_NAME,
                "items": {"type": "object", "properties": {"name": TEXT, "size": INTEGER}},
            },
            [{"name": "a", "size": 0}],
            [{"name": "b", "size": 0}],
            False,
        ),
    ],
)
@pytest.mark.parametrize("rule", [{"minimum": 1}, {RULES: [{"rule": "self > 0"}]}])
def test_unchanged_invalid_values_are_accepted_by_list_type(schema, before, after, kept, rule):
    kind = of({}, value=narrowed(schema, rule), other=INTEGER)
    before, after = ({"value": value, "other": n} for n, value in enumerate((before, after)))
    causes = schema_for(kind, "v1").check({"spec": after})
    causes = introduced(causes, {"spec": after}, {"spec": before}, kind.schemas["v1"])
    assert ([*causes, *messages(kind, after, before)[0]] == []) == kept


def narrowed(schema, rule):
    """Return a schema with further constraints on its numbers."""
    if schema["type"] == "integer":
        return schema | rule
    below = {word: schema[word] for word in ("items", "additionalProperties") if word in schema}
    made = {word: narrowed(inner, rule) for word, inner in below.items()}
    if fields := schema.get("properties"):
        made["properties"] = {
            name: narrowed(inner, rule) if name == "size" else inner
            for name, inner in fields.items()
        }
    return schema | made


def test_values_of_atomic_maps_are_correlated_by_key():
    rule = {RULES: [{"rule": "self == oldSelf"}]}
    kind = of(
        {},
        value={
            "type": "object",
            "x-kubernetes-map-type": "atomic",
            "additionalProperties": INTEGER | rule,
        },
    )
    assert messages(kind, {"value": {"a": 1, "b": 2}}, {"value": {"a": 1}})[0] == []
    assert messages(kind, {"value": {"a": 2}}, {"value": {"a": 1}})[0][0][0] == "spec.value[a]"


def test_reserved_words_of_cel_are_escaped():
    kind = ruled(
        {"rule": "self.a__dash__b == self.__namespace__"}, **{"a-b": TEXT, "namespace": TEXT}
    )
    assert messages(kind, {"a-b": "x", "namespace": "x"}) == ([], [])


def test_items_of_map_lists_are_correlated_by_key():
    item = {"type": "object", "properties": {"name": TEXT, "size": INTEGER}}
    item["x-kubernetes-validations"] = [{"rule": "self.size >= oldSelf.size"}]
    kind = of(
        {},
        parts={"type": "array", **BY_NAME, "items": item},
    )
    old = {"parts": [{"name": "a", "size": 1}, {"name": "b", "size": 5}]}
    assert (
        messages(kind, {"parts": [{"name": "b", "size": 5}, {"name": "a", "size": 2}]}, old)[0]
        == []
    )
    assert messages(kind, {"parts": [{"name": "b", "size": 4}]}, old)[0][0][0] == "spec.parts[0]"


def test_an_update_is_rejected_only_for_changed_values():
    kind = of({}, old=INTEGER, new=INTEGER)
    schema = schema_for(kind, "v1")
    before = {"spec": {"old": "x", "new": 1}}
    after = {"spec": {"old": "x", "new": 2}}
    assert introduced(schema.check(after), after, before, kind.schemas["v1"]) == []
    after["spec"]["new"] = "y"
    causes = introduced(schema.check(after), after, before, kind.schemas["v1"])
    assert [cause.field for cause in causes] == ["spec.new"]


@pytest.mark.parametrize("rule", [{"minimum": 1}, {RULES: [{"rule": "self > 0"}]}])
def test_a_list_with_many_faults_is_compared_once(rule, monkeypatch):
    """One comparison for each would take minutes for a long list."""
    kind = of({}, value={"type": "array", "items": INTEGER | rule})
    before, after = {"value": [0] * 50}, {"value": [0] * 51}
    compared = []
    for module in (ratcheting, cel_rules):
        real = module.same
        monkeypatch.setattr(module, "same", lambda *both, of=real: compared.append(1) or of(*both))
    causes = schema_for(kind, "v1").check({"spec": after})
    causes = introduced(causes, {"spec": after}, {"spec": before}, kind.schemas["v1"])
    assert len([*causes, *messages(kind, after, before)[0]]) == 51
    assert len(compared) == 1


def test_a_map_list_with_many_faults_is_indexed_once(monkeypatch):
    item = {"type": "object", "properties": {"name": TEXT, "size": INTEGER | {"minimum": 1}}}
    kind = of(
        {},
        value={"type": "array", **BY_NAME, "items": item},
    )
    before, after = ({"value": [{"name": f"n{i}", "size": n} for i in range(50)]} for n in (0, -1))
    found = []
    real = ratcheting.correlated
    monkeypatch.setattr(ratcheting, "correlated", lambda *of: found.append(1) or real(*of))
    causes = schema_for(kind, "v1").check({"spec": after})
    assert len(introduced(causes, {"spec": after}, {"spec": before}, kind.schemas["v1"])) == 50
    assert len(found) == 1


def test_an_object_at_two_paths_is_compared_at_each():
    item = {"type": "object", "properties": {"name": TEXT, "size": INTEGER | {"minimum": 1}}}
    by_name = {"type": "array", **BY_NAME, "items": item}
    kind = of({}, one=by_name, other=by_name)
    shared, valid = [{"name": "a", "size": 0}], [{"name": "a", "size": 1}]
    before, after = {"one": shared, "other": valid}, {"one": shared, "other": shared}
    causes = schema_for(kind, "v1").check({"spec": after})
    kept = introduced(causes, {"spec": after}, {"spec": before}, kind.schemas["v1"])
    assert [cause.field for cause in kept] == ["spec.other[0].size"]


def test_skipped_rules_are_reported_if_there_are_any():
    ruled = {"type": "array", "items": TEXT | {RULES: [{"rule": "self != ''"}]}}
    for names, fields in ((ruled, ["spec.size", "<nil>"]), (INTEGER, ["spec.size"])):
        schema = schema_for(of({}, names=names, size=INTEGER), "v1")
        assert [cause.field for cause in schema.check({"spec": {"size": "x"}})] == fields


def test_versions_have_their_own_columns_and_subresources():
    kind = kind_of(
        definition(
            version("v1alpha1", storage=False, subresources={"status": {}}),
            version(
                "v1",
                additionalPrinterColumns=[
                    {"name": "Size", "type": "integer", "jsonPath": ".spec.size"}
                ],
            ),
            version("v0", storage=False, served=False),
        )
    )
    table = KindTable([kind])
    alpha = table.find("farm.example.com", "v1alpha1", "herds")
    assert (alpha.status, [column.name for column in alpha.columns]) == (True, ["Age"])
    one = table.find("farm.example.com", "v1", "herds")
    assert (one.status, [column.name for column in one.columns]) == (False, ["Size"])
    assert one.columns[0].cell({"spec": {"size": 3}}) == 3
    assert table.find("farm.example.com", "v0", "herds") is None
    assert [each.version for each in table.group_versions()] == ["v1", "v1alpha1"]
    table.remove(kind)
    assert table.group_versions() == ()


def test_versions_are_ordered_as_in_kubernetes():
    names = ["v1beta2", "foo10", "v10", "v11alpha2", "v2", "v1", "v1beta10", "foo1"]
    assert sorted(names, key=preference) == [
        *("v10", "v2", "v1", "v1beta10", "v1beta2", "v11alpha2", "foo1", "foo10")
    ]  # fmt: skip


def test_stored_objects_are_converted_after_a_change_of_the_schema():
    messages = definition(
        version(spec={"type": "object", "properties": {"new": {**TEXT, "default": "x"}}})
    )
    assert kind_of(messages).versions[0].write is None
    messages["metadata"]["generation"] = 2
    document = {"metadata": {"name": "cows"}, "spec": {"old": 1}}
    kind_of(messages).versions[0].write(document)
    assert document["spec"] == {"new": "x"}


def test_objects_of_an_earlier_version_keep_its_fields():
    old = {"type": "object", "properties": {"old": INTEGER, "kept": {**TEXT, "default": "y"}}}
    new = {"type": "object", "properties": {"new": {**TEXT, "default": "x"}}}
    messages = definition(version("v1", storage=False, spec=old), version("v2", spec=new))
    messages["metadata"]["generation"] = 2
    document = {"apiVersion": "farm.example.com/v1", "spec": {"old": 1, "gone": 2}}
    kind_of(messages).versions[0].write(document)
    assert document["spec"] == {"old": 1, "kept": "y"}
    document = {"apiVersion": "farm.example.com/v2", "spec": {"old": 1}}
    kind_of(messages).versions[0].write(document)
    assert document["spec"] == {"new": "x"}


def test_multiple_of_tolerates_rounding():
    kind = of({}, x={"type": "number", "multipleOf": 0.1})
    for fits in (0.3, 0, 0.7, 1e15, -0.3):
        assert schema_for(kind, "v1").check({"spec": {"x": fits}}) == [], fits
    for odd in (0.35, 1e-12, 1e308):
        assert schema_for(kind, "v1").check({"spec": {"x": odd}}), odd
