"""Typed documents: comparison, managed fields, merging and removal of paths."""

import msgspec
import pytest
from hypothesis import given, strategies as st

from corral.api.apply.types import Typed
from corral.api.encoding import copied, encode_sorted

encode = msgspec.json.encode

TEXT = {"type": "string"}
ITEM = {
    "type": "object",
    "properties": {"name": TEXT, "value": TEXT, "port": {"type": "integer"},
                   "protocol": {"type": "string", "default": "TCP"}},
}  # fmt: skip


def listed(kind, items, *keys):
    schema = {"type": "array", "items": items, "x-kubernetes-list-type": kind}
    return schema | ({"x-kubernetes-list-map-keys": list(keys)} if keys else {})


SCHEMA = {
    "type": "object",
    "properties": {
        "apiVersion": TEXT,
        "kind": TEXT,
        "metadata": {
            "type": "object",
            "properties": {
                "name": TEXT,
                "labels": {"type": "object", "additionalProperties": TEXT},
                "finalizers": listed("set", TEXT),
            },
        },
        "spec": {
            "type": "object",
            "properties": {
                "text": TEXT,
                "struct": {"type": "object", "properties": {"a": TEXT, "b": TEXT}},
                "whole": {
                    "type": "object",
                    "properties": {"a": TEXT, "b": TEXT},
                    "x-kubernetes-map-type": "atomic",
                },
                "list": {"type": "array", "items": ITEM},
                "set": listed("set", TEXT),
                "byName": listed("map", ITEM, "name"),
                "ports": listed("map", ITEM, "port", "protocol"),
                "map": {"type": "object", "additionalProperties": ITEM},
                "any": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                "either": {"x-kubernetes-int-or-string": True},
            },
        },
    },
}
TYPED = Typed(SCHEMA)
WITH_KEYS = "associative list with keys has an element"
WITHOUT_KEYS = "associative list without keys has an element"
NO_DEFAULT = "(and doesn't have default value)"


def thing(**spec):
    return {"metadata": {}, "spec": spec}


def leaf(*names):
    return {f"f:{name}": {} for name in names}


@pytest.mark.parametrize(
    ("old", "new", "changed", "removed"),
    [
        ({}, {}, {}, {}),
        ({"text": "a"}, {"text": "a"}, {}, {}),
        ({"text": "a"}, {"text": "b"}, leaf("text"), {}),
        ({}, {"text": "b"}, leaf("text"), {}),
        ({"text": "a"}, {}, {}, leaf("text")),
        ({"text": "a"}, {"list": []}, leaf("list"), leaf("text")),
        # objects: their fields, and they themselves when they come or go
        ({}, {"struct": {"a": "1"}}, {"f:struct": {".": {}, "f:a": {}}}, {}),
        ({"struct": {"a": "1"}}, {}, {}, {"f:struct": {".": {}, "f:a": {}}}),
        ({"struct": {}}, {"struct": {"a": "1"}}, {"f:struct": {"f:a": {}}}, {}),
        ({"struct": {"a": "1"}}, {"struct": {}}, {}, {"f:struct": {"f:a": {}}}),
        ({}, {"struct": {}}, leaf("struct"), {}),
        ({"struct": None}, {"struct": {}}, leaf("struct"), {}),
        ({"struct": None}, {"struct": {"a": "1"}}, leaf("struct"), {}),
        ({"map": {"x": {"name": "n"}}}, {"map": {"x": {"name": "m"}, "y": {}}},
         {"f:map": {"f:x": {"f:name": {}}, "f:y": {}}}, {}),
        # what is atomic is one leaf
        ({"whole": {"a": "1"}}, {"whole": {"a": "2"}}, leaf("whole"), {}),
        ({"whole": {"a": "1", "b": "1"}}, {"whole": {"a": "1"}}, leaf("whole"), {}),
        ({"list": [{"name": "n"}]}, {"list": [{"name": "n"}, {"name": "m"}]}, leaf("list"), {}),
        ({"list": [{"name": "n"}]}, {}, {}, leaf("list")),
        # sets of values
        ({"set": ["a", "b"]}, {"set": ["b", "a"]}, {}, {}),
        ({"set": ["a", "b"]}, {"set": ["b", "c"]},
         {"f:set": {'v:"c"': {}}}, {"f:set": {'v:"a"': {}}}),
        ({}, {"set": ["a"]}, {"f:set": {".": {}, 'v:"a"': {}}}, {}),
        ({}, {"set": []}, leaf("set"), {}),
        # lists whose items have keys
        ({"byName": [{"name": "n", "value": "1"}]}, {"byName": [{"name": "n", "value": "2"}]},
         {"f:byName": {'k:{"name":"n"}': {"f:value": {}}}}, {}),
        ({"byName": [{"name": "n"}]}, {"byName": [{"name": "m"}, {"name": "n"}]},
         {"f:byName": {'k:{"name":"m"}': {".": {}, "f:name": {}}}}, {}),
        ({"byName": [{"name": "n"}, {"name": "m"}]}, {"byName": [{"name": "n"}]},
         {}, {"f:byName": {'k:{"name":"m"}': {".": {}, "f:name": {}}}}),
        ({"ports": [{"port": 80}]}, {"ports": [{"port": 80, "protocol": "TCP"}]},
         {"f:ports": {'k:{"port":80,"protocol":"TCP"}': {"f:protocol": {}}}}, {}),
        ({"ports": [{"port": 80}]}, {"ports": [{"port": 80}, {"port": 80, "protocol": "UDP"}]},
         {"f:ports": {'k:{"port":80,"protocol":"UDP"}': {".": {}, "f:port": {}, "f:protocol": {}}}},
         {}),
        # items with the same keys are one leaf
        ({"byName": [{"name": "n", "value": "1"}, {"name": "n", "value": "2"}]},
         {"byName": [{"name": "n", "value": "1"}, {"name": "n", "value": "2"}]}, {}, {}),
        ({"byName": [{"name": "n", "value": "1"}, {"name": "n", "value": "2"}]},
         {"byName": [{"name": "n", "value": "1"}, {"name": "n", "value": "3"}]},
         {"f:byName": {'k:{"name":"n"}': {}}}, {}),
        ({"byName": [{"name": "n"}, {"name": "n"}]}, {"byName": [{"name": "n"}]},
         {"f:byName": {'k:{"name":"n"}': {}}}, {}),
        # what the schema does not name: objects are maps, all else are leaves
        ({"any": {"x": {"y": 1}}}, {"any": {"x": {"y": 2, "z": [1]}}},
         {"f:any": {"f:x": {"f:y": {}, "f:z": {}}}}, {}),
        ({"any": {"x": [1]}}, {"any": {"x": [1, 2]}}, {"f:any": {"f:x": {}}}, {}),
        ({"any": {"x": 1}}, {"any": {"x": {"y": 1}}},
         {"f:any": {"f:x": {".": {}, "f:y": {}}}}, {}),
        ({"any": {"x": {"y": 1}}}, {"any": {"x": 1}},
         {"f:any": {"f:x": {}}}, {"f:any": {"f:x": {"f:y": {}}}}),
    ],
)  # fmt: skip
def test_changed_and_removed_fields(old, new, changed, removed):
    expected = ({"f:spec": changed} if changed else {}, {"f:spec": removed} if removed else {})
    if not old or not new:  # an empty spec is a leaf while the other is empty, too
        old, new = {"either": 0, **old}, {"either": 0, **new}
    assert TYPED.compare(thing(**old), thing(**new)) == expected


def test_identifying_metadata_is_not_managed():
    old = {"apiVersion": "v1", "metadata": {"name": "a"}}
    new = {"apiVersion": "v2", "metadata": {"name": "b", "uid": "1", "labels": {"x": "y"}}}
    assert TYPED.compare(old, new) == ({"f:metadata": {"f:labels": {".": {}, "f:x": {}}}}, {})
    assert TYPED.applied(new) == {"f:metadata": {"f:labels": {"f:x": {}}}}


@pytest.mark.parametrize(
    ("spec", "fields"),
    [
        ({"text": "a"}, leaf("text")),
        ({"text": None}, leaf("text")),
        ({"struct": {}}, leaf("struct")),
        ({"struct": {"a": "1"}}, {"f:struct": {"f:a": {}}}),
        ({"whole": {"a": "1"}, "list": [{}]}, leaf("whole", "list")),
        ({"list": []}, leaf("list")),
        ({"set": ["a"]}, {"f:set": {'v:"a"': {}}}),
        ({"byName": [{"name": "n"}]}, {"f:byName": {'k:{"name":"n"}': {".": {}, "f:name": {}}}}),
        ({"map": {"x": {"name": "n"}}}, {"f:map": {"f:x": {".": {}, "f:name": {}}}}),
        ({"any": {"x": {"y": 1}}}, {"f:any": {"f:x": {".": {}, "f:y": {}}}}),
    ],
)  # fmt: skip
def test_fields_of_an_applied_configuration(spec, fields):
    assert TYPED.applied(thing(**spec)) == {"f:spec": fields}


@pytest.mark.parametrize(
    ("live", "target", "merged"),
    [
        ({"text": "a"}, {"text": "b"}, {"text": "b"}),
        ({"struct": {"a": "1", "b": "1"}}, {"struct": {"a": "2"}},
         {"struct": {"a": "2", "b": "1"}}),
        ({"whole": {"a": "1", "b": "1"}}, {"whole": {"a": "2"}}, {"whole": {"a": "2"}}),
        ({"list": [{"name": "n"}]}, {"list": [{"name": "m"}]}, {"list": [{"name": "m"}]}),
        ({"set": ["a", "b"]}, {"set": ["c", "b"]}, {"set": ["a", "c", "b"]}),
        ({"any": {"x": {"y": 1}}}, {"any": {"x": {"z": 1}}}, {"any": {"x": {"y": 1, "z": 1}}}),
        ({"any": {"x": {"y": 1}}}, {"any": {"x": 1}}, {"any": {"x": 1}}),
        ({"byName": [{"name": "n", "value": "1"}]}, {"byName": [{"name": "n", "port": 1}]},
         {"byName": [{"name": "n", "value": "1", "port": 1}]}),
        ({"struct": {"a": "1"}}, {"struct": {}}, {"struct": {"a": "1"}}),
    ],
)  # fmt: skip
def test_a_configuration_is_merged_into_the_live_object(live, target, merged):
    assert TYPED.merged(thing(**live), thing(**target)) == thing(**merged)


@pytest.mark.parametrize(
    ("live", "target", "merged"),
    [
        ("", "ab", "ab"),
        ("ab", "", "ab"),
        ("ab", "c", "abc"),
        ("ab", "ca", "cab"),
        ("ab", "bc", "abc"),
        ("ab", "cb", "acb"),
        ("abc", "cba", "cba"),
        ("abc", "ca", "bca"),
        ("axb", "nx", "anxb"),
        ("abcde", "dxb", "acdexb"),
        ("abc", "bxcy", "abxcy"),
    ],
)  # fmt: skip
def test_merged_sets_keep_both_orders(live, target, merged):
    """The applied order is kept; what only lives comes before what it stood before."""
    found = TYPED.merged(thing(set=list(live)), thing(set=list(target)))
    assert "".join(found["spec"]["set"]) == merged


@pytest.mark.parametrize(
    ("spec", "fields", "left"),
    [
        ({"text": "a", "either": 1}, leaf("text"), {"either": 1}),
        ({"struct": {"a": "1", "b": "1"}}, {"f:struct": {"f:a": {}}}, {"struct": {"b": "1"}}),
        ({"struct": {"a": "1"}, "text": "a"}, {"f:struct": {"f:a": {}}}, {"text": "a"}),
        ({"struct": {"a": "1"}, "text": "a"}, leaf("struct"), {"text": "a"}),
        ({"set": ["a", "b"]}, {"f:set": {'v:"a"': {}}}, {"set": ["b"]}),
        ({"byName": [{"name": "n", "value": "1"}, {"name": "m"}]},
         {"f:byName": {'k:{"name":"n"}': {"f:value": {}}, 'k:{"name":"m"}': {}}},
         {"byName": [{"name": "n"}]}),
        ({"any": {"x": {"y": 1, "z": 1}}}, {"f:any": {"f:x": {"f:y": {}}}},
         {"any": {"x": {"z": 1}}}),
        ({"text": "a"}, leaf("nosuch"), {"text": "a"}),
    ],
)  # fmt: skip
def test_paths_are_removed(spec, fields, left):
    assert TYPED.without(thing(**spec), {"f:spec": fields}) == thing(**left)


def test_emptied_objects_and_lists_may_be_kept():
    spec = {"struct": {"a": "1"}, "set": ["a"], "byName": [{"name": "n"}]}
    fields = {"f:struct": {"f:a": {}}, "f:set": {'v:"a"': {}},
              "f:byName": {'k:{"name":"n"}': {"f:name": {}}}}  # fmt: skip
    left = TYPED.without(thing(**spec), {"f:spec": fields}, bare=True)
    assert left == thing(struct={}, set=[], byName=[{}])


def test_named_fields_are_those_of_objects_with_named_fields():
    fields = {
        "f:metadata": {"f:labels": {"f:x": {}}},
        "f:spec": {
            "f:map": {"f:x": {"f:name": {}}},
            "f:byName": {'k:{"name":"n"}': {"f:port": {}}},
        },
    }
    assert TYPED.named(fields) == {
        "f:metadata": {"f:labels": {".": {}, "f:x": {}}},
        "f:spec": {
            ".": {},
            "f:map": {".": {}, "f:x": {"f:name": {}}},
            "f:byName": {".": {}, 'k:{"name":"n"}': {"f:port": {}}},
        },
    }


@pytest.mark.parametrize(
    ("spec", "fault"),
    [
        ({"txt": "a"}, ".spec.txt: field not declared in schema"),
        ({"struct": {"c": 1}}, ".spec.struct.c: field not declared in schema"),
        ({"list": [{}, {"c": 1}]}, ".spec.list[1].c: field not declared in schema"),
        ({"whole": {"c": 1}}, ".spec.whole.c: field not declared in schema"),
        ({"struct": ["a"]}, '.spec.struct: expected map, got ["a"]'),
        ({"set": {}}, ".spec.set: expected list, got {}"),
        ({"text": 1}, ".spec.text: expected string, got &value.valueUnstructured{Value:1}"),
        ({"list": [{"port": "a"}]},
         ".spec.list[0].port: expected numeric (int or float), got string"),
        ({"byName": [{"name": "n", "port": True}]},
         '.spec.byName[name="n"].port: expected numeric (int or float), got bool'),
        ({"set": ["a", "a"]}, '.spec.set: duplicate entries for key [="a"]'),
        ({"set": [{}]}, f".spec.set: element 0: {WITHOUT_KEYS} that's a map type"),
        ({"byName": [{"name": "n"}, {"name": "n"}]},
         '.spec.byName: duplicate entries for key [name="n"]'),
        ({"byName": [{"value": "n"}]},
         f'.spec.byName: element 0: {WITH_KEYS} that omits key field "name" {NO_DEFAULT}'),
        ({"ports": [{"port": 80}, {"port": 80, "protocol": "TCP"}]},
         '.spec.ports: duplicate entries for key [port=80,protocol="TCP"]'),
        ({"byName": ["n"]}, f".spec.byName: element 0: {WITH_KEYS} that's not a map"),
    ],
)  # fmt: skip
def test_values_of_the_wrong_type_are_reported(spec, fault):
    assert TYPED.faults(thing(**spec)) == [fault]


@pytest.mark.parametrize("spec", [{"any": {"x": [{"y": 1}]}}, {"either": 1}, {"struct": None}])
def test_valid_values_have_no_faults(spec):
    assert TYPED.faults(thing(**spec)) == []


names = st.sampled_from(["b", "a", "ä", "name", "text", "c"])
texts = st.dictionaries(names, names)
specs = st.fixed_dictionaries(
    {},
    optional={
        "text": names,
        "struct": st.fixed_dictionaries({}, optional={"b": names, "a": names}),
        "set": st.lists(names, max_size=3),
        "byName": st.lists(st.fixed_dictionaries({"value": names, "name": names}), max_size=3),
        "any": st.dictionaries(names, texts, max_size=3),
        "map": st.dictionaries(names, st.fixed_dictionaries({"value": names, "name": names})),
    },
)


@given(specs, specs, texts)
def test_changed_fields_are_sorted(old, new, labels):
    before = {"metadata": {}, "spec": old}
    after = {"spec": new, "metadata": {"labels": labels}}
    for base in (before, {"metadata": {}}):
        changed, _ = TYPED.compare(base, after)
        assert encode(changed) == encode_sorted(changed)


def test_the_fields_of_equal_specs_are_found_once():
    spec = {"map": {f"key-{number}": {"value": "a"} for number in range(30)}}
    fields = [TYPED.compare({"metadata": {}}, thing(**copied(spec)))[0] for _ in range(2)]
    assert fields[0]["f:spec"] is fields[1]["f:spec"]
    assert len(fields[0]["f:spec"]["f:map"]) == 31
    other = thing(**spec, text="a")
    assert TYPED.compare({"metadata": {}}, other)[0]["f:spec"] == fields[0]["f:spec"] | {
        "f:text": {}
    }
