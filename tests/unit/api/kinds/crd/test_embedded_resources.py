"""Embedded resources: pruning and validation."""

import pytest
from tests.unit.api.kinds.crd.test_custom_kinds import INTEGER, messages, of, taken

WHOLE = {
    "type": "object",
    "x-kubernetes-embedded-resource": True,
    "x-kubernetes-preserve-unknown-fields": True,
}
POD = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "labels": {"a": "b"}}}


def test_an_embedded_resource_keeps_only_known_metadata():
    kind = of({}, template=WHOLE)
    pod = {**POD, "spec": {"x": 1}, "metadata": {**POD["metadata"], "odd": 1}}
    kept, unknown, faults = taken(kind, {"template": pod})
    assert (kept, faults) == ({"template": {**POD, "spec": {"x": 1}}}, [])
    assert unknown == ["spec.template.metadata.odd"]
    assert messages(kind, kept) == ([], [])


@pytest.mark.parametrize(
    ("change", "field", "message"),
    [
        ({"kind": ""}, "kind", 'Invalid value: "": must not be empty'),
        ({"kind": "A B"}, "kind", "may have mixed case, but should otherwise match: a DNS-1035"),
        ({"apiVersion": "a/b/c"}, "apiVersion", "unexpected GroupVersion string: a/b/c"),
        ({"metadata": {"name": "a/b"}}, "metadata.name", "may not contain '/'"),
        ({"metadata": {"namespace": "a.b"}}, "metadata.namespace", "a lowercase RFC 1123 label"),
        ({"metadata": {"labels": {"a": "-"}}}, "metadata.labels", "a valid label must be"),
        ({"metadata": {"finalizers": ["a b"]}}, "metadata.finalizers", "name part must consist"),
    ],
)
def test_an_invalid_embedded_resource_is_rejected(change, field, message):
    where = of({}, many={"type": "array", "items": {"type": "object", "properties": {"x": WHOLE}}})
    causes, _ = messages(where, {"many": [{"x": POD}, {"x": {**POD, **change}}]})
    assert [path for path, _ in causes] == [f"spec.many[1].x.{field}"]
    assert message in causes[0][1]


def test_an_embedded_resource_needs_a_kind_but_no_name():
    kind = of({}, by_name={"type": "object", "additionalProperties": WHOLE})
    causes, _ = messages(kind, {"by_name": {"a": {}, "b": {**POD, "metadata": {}}}})
    assert causes == [
        ("spec.by_name[a].apiVersion", "Required value: must not be empty"),
        ("spec.by_name[a].kind", "Required value: must not be empty"),
    ]


def test_an_unchanged_invalid_embedded_resource_is_accepted():
    kind = of({}, template=WHOLE, size=INTEGER)
    assert messages(kind, {"template": {}, "size": 2}, {"template": {}, "size": 1}) == ([], [])
    assert messages(kind, {"template": {}}, {"template": POD})[0] != []


def test_metadata_of_an_embedded_resource_has_the_usual_types():
    spec = {"template": {**POD, "apiVersion": 1, "metadata": {"labels": {"a": 1}}}}
    _, _, faults = taken(of({}, template=WHOLE), spec)
    assert len(faults) == 2


@pytest.mark.parametrize(
    ("bounds", "metadata"),
    [
        ({"annotations": {"additionalProperties": {"type": "integer"}}}, {"annotations": {"a": 5}}),
        ({"labels": {"properties": {"a": {"type": "integer"}}}}, {"labels": {"a": 5}}),
        ({"labels": {"type": "string"}}, {"labels": "a"}),
        ({"name": {"type": "integer"}}, {"name": 5}),
        ({"finalizers": {"type": "array", "items": {"type": "integer"}}}, {"finalizers": [5]}),
    ],
)
def test_a_schema_cannot_give_metadata_other_types(bounds, metadata):
    own = {"metadata": {"type": "object", "properties": bounds}}
    kind = of({}, template={**WHOLE, "properties": own})
    _, _, faults = taken(kind, {"template": {**POD, "metadata": metadata}})
    assert faults != []


def test_a_schema_can_bound_metadata():
    bounds = {
        "name": {"type": "string", "maxLength": 1},
        "labels": {"type": "object", "additionalProperties": {"type": "string", "maxLength": 1}},
    }
    own = {"metadata": {"type": "object", "properties": bounds, "required": ["name"]}}
    kind = of({}, template={**WHOLE, "properties": own})
    for metadata in ({"name": "ab"}, {"name": "a", "labels": {"a": "bc"}}, {}):
        assert taken(kind, {"template": {**POD, "metadata": metadata}})[2] != []
    assert taken(kind, {"template": POD})[2] == []


@pytest.mark.parametrize("change", [{"metadata": {"labels": {"a": 1}}}, {"apiVersion": 1}])
def test_embedded_resources_of_other_types_are_harmless(change):
    assert messages(of({}, template=WHOLE), {"template": {**POD, **change}}) == ([], [])
