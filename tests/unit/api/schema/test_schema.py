from typing import Annotated, Literal

import msgspec
import pytest
from hypothesis import given, settings, strategies as st
from lightkube.models.coordination_v1 import Lease
from lightkube.models.core_v1 import Event, Node, Pod, Secret
from lightkube.models.events_v1 import Event as EventsEvent

from corral.api.encoding import copied, decode_json, same
from corral.api.errors import MAX_CAUSES, UNCHECKED, Cause
from corral.api.object import AnyFields, IntOrString, Object, ObjectMeta, Quantity, Struct, Time
from corral.api.schema import Schema, schema_of
from corral.api.types import descriptions


class Part(Struct, kw_only=True):
    """A part.

    name: what it is called,
        by those who know it.
    """

    name: str
    port: IntOrString | None = None


class Spec(Struct, kw_only=True):
    """What it shall be."""

    selector: dict[str, str]
    replicas: int = 1
    limited: Annotated[int, msgspec.Meta(ge=0, le=9)] = 0
    word: Annotated[str, msgspec.Meta(pattern="^[a-z]*$", max_length=3)] = ""
    mode: Literal["On", "Off"] = "On"
    memory: Quantity | None = None
    ratio: float = 0.0
    since: Time | None = None
    parts: Annotated[list[Part], msgspec.Meta(max_length=2)] = []
    any_fields: AnyFields = {}
    by_name: dict[str, Part] = {}
    flag: bool = False


class Thing(Object, kw_only=True):
    """A thing.

    spec: what it shall be.
    """

    spec: Spec


SCHEMA = Schema(schema_of(Thing))


def causes_of(**spec):
    document = {"spec": {"selector": {}, **spec}}
    return [cause for cause in SCHEMA.check(document) if cause != UNCHECKED]


def test_the_schema_follows_the_types():
    schema = schema_of(Thing)
    assert list(schema["properties"]) == ["apiVersion", "kind", "metadata", "spec"]
    assert schema["required"] == ["spec"]
    spec = schema["properties"]["spec"]
    assert spec["required"] == ["selector"]
    properties = spec["properties"]
    assert properties["limited"] == {
        "type": "integer",
        "format": "int64",
        "minimum": 0,
        "maximum": 9,
    }
    assert properties["mode"] == {"type": "string", "enum": ["On", "Off"]}
    assert properties["memory"]["x-kubernetes-int-or-string"]
    assert properties["since"] == {"type": "string", "format": "date-time"}
    assert properties["anyFields"]["x-kubernetes-preserve-unknown-fields"]
    assert properties["parts"]["items"] is properties["byName"]["additionalProperties"]
    assert properties["parts"]["maxItems"] == 2


def test_unknown_fields_are_removed_and_reported_with_paths():
    document = {
        "apiVersion": "v1",
        "extra": 1,
        "metadata": {"name": "a", "nme": 1},
        "spec": {
            "selector": {"any": "key"},
            "foo": {"bar": 1},
            "parts": [{"name": "a"}, {"name": "b", "bar": 1}],
            "byName": {"x": {"name": "a", "baz": 1}},
            "anyFields": {"what": {"ever": None}},
        },
    }
    assert sorted(SCHEMA.prune(document)) == [
        "extra",
        "metadata.nme",
        "spec.byName.x.baz",
        "spec.foo",
        "spec.parts[1].bar",
    ]
    assert document == {
        "apiVersion": "v1",
        "metadata": {"name": "a"},
        "spec": {
            "selector": {"any": "key"},
            "parts": [{"name": "a"}, {"name": "b"}],
            "byName": {"x": {"name": "a"}},
            "anyFields": {"what": {"ever": None}},
        },
    }


def test_nulls_are_removed_without_a_warning():
    document = {
        "metadata": {"creationTimestamp": None},
        "spec": {"replicas": None, "selector": {"a": None}},
    }
    assert SCHEMA.prune(document) == []
    assert document == {"metadata": {}, "spec": {"selector": {}}}


def test_null_is_the_empty_string_in_maps_of_native_kinds():
    document = {
        "metadata": {"name": "a", "labels": {"app": None}, "annotations": {"a": None, "b": "c"}},
        "spec": {
            "nodeSelector": {"node-role.kubernetes.io/worker": None},
            "containers": [{"name": "c", "resources": {"limits": {"cpu": None, "memory": 1}}}],
            "overhead": None,
        },
    }
    schema = Schema(schema_of(Pod), native=True)
    assert not schema.fits(document)
    assert schema.prune(document) == []
    assert not schema.check(document)
    assert document == {
        "metadata": {"name": "a", "labels": {"app": ""}, "annotations": {"a": "", "b": "c"}},
        "spec": {
            "nodeSelector": {"node-role.kubernetes.io/worker": ""},
            "containers": [{"name": "c", "resources": {"limits": {"cpu": "0", "memory": "1"}}}],
        },
    }


@pytest.mark.parametrize(
    ("written", "kept"),
    [
        ("", ""),
        ("YQ==", "YQ=="),
        ("YQ==\n", "YQ=="),
        ("YWJj\r\nZGVm\n", "YWJjZGVm"),
        ("YR==", "YQ=="),  # bits that stand for nothing
        ("YQ", "YQ"),
        (" YQ==", " YQ=="),
        ("a\n-", "a\n-"),
    ],
)
def test_base64_has_no_line_breaks(written, kept):
    document = {"metadata": {"name": "a"}, "data": {"a": written}}
    schema = Schema(schema_of(Secret), native=True)
    schema.prune(document)
    assert document["data"] == {"a": kept}


@pytest.mark.parametrize(
    ("spec", "cause"),
    [
        (
            {"replicas": "string"},
            Cause(
                "spec.replicas",
                'Invalid value: "string": spec.replicas in body must be of type integer: "string"',
                "FieldValueTypeInvalid",
            ),
        ),
        (
            {"replicas": 1.5},
            Cause(
                "spec.replicas",
                'Invalid value: "number": spec.replicas in body must be of type integer: "number"',
                "FieldValueTypeInvalid",
            ),
        ),
        (
            {"parts": [{"name": "a"}, None]},
            Cause(
                "spec.parts[1]",
                'Invalid value: "null": spec.parts[1] in body must be of type object: "null"',
                "FieldValueTypeInvalid",
            ),
        ),
        (
            {"parts": {}},
            Cause(
                "spec.parts",
                'Invalid value: "object": spec.parts in body must be of type array: "object"',
                "FieldValueTypeInvalid",
            ),
        ),
        (
            {"memory": True},
            Cause(
                "spec.memory",
                'Invalid value: "boolean": spec.memory in body must be of type integer,string: '
                '"boolean"',
                "FieldValueTypeInvalid",
            ),
        ),
        (
            {"selector": {"a": 1}},
            Cause(
                "spec.selector.a",
                'Invalid value: "integer": spec.selector.a in body must be of type string: '
                '"integer"',
                "FieldValueTypeInvalid",
            ),
        ),
        (
            {"flag": 1},
            Cause(
                "spec.flag",
                'Invalid value: "integer": spec.flag in body must be of type boolean: "integer"',
                "FieldValueTypeInvalid",
            ),
        ),
        (
            {"mode": "Maybe"},
            Cause(
                "spec.mode",
                'Unsupported value: "Maybe": supported values: "On", "Off"',
                "FieldValueNotSupported",
            ),
        ),
        (
            {"limited": -1},
            Cause(
                "spec.limited",
                "Invalid value: -1: spec.limited in body should be greater than or equal to 0",
            ),
        ),
        (
            {"word": "A"},
            Cause("spec.word", "Invalid value: \"A\": spec.word in body should match '^[a-z]*$'"),
        ),
        (
            {"word": "abcd"},
            Cause(
                "spec.word",
                "Too long: may not be more than 3 bytes",
                "FieldValueTooLong",
            ),
        ),
        (
            {"since": "yesterday"},
            Cause(
                "spec.since",
                'Invalid value: "yesterday": spec.since in body must be of type date-time: '
                '"yesterday"',
                "FieldValueTypeInvalid",
            ),
        ),
        ({"parts": [{}]}, Cause("spec.parts[0].name", "Required value", "FieldValueRequired")),
        (
            {"parts": [{"name": "a"}] * 3},
            Cause("spec.parts", "Too many: 3: must have at most 2 items", "FieldValueTooMany"),
        ),
    ],
)
def test_invalid_values_have_the_messages_of_kubernetes(spec, cause):
    assert causes_of(**spec) == [cause]


def test_invalid_quantities_are_rejected():
    assert causes_of(memory="64MiB")[0].field == "spec.memory"
    assert causes_of(memory="64Mi\n")[0].field == "spec.memory"
    assert causes_of(memory="64Mi") == causes_of(memory=64) == causes_of(memory="1e3") == []


def test_integers_must_be_whole_and_in_range():
    assert causes_of(replicas=-(2**63), ratio=1) == []
    assert causes_of(replicas=2**63)[0].field == "spec.replicas"
    assert causes_of(replicas=2.0)[0].field == "spec.replicas"  # decoding has made it 2 before


def test_a_field_that_preserves_unknown_fields_must_be_an_object():
    assert causes_of(anyFields={"a": [None]}) == []
    assert causes_of(anyFields="a")[0].reason == "FieldValueTypeInvalid"


def test_a_missing_field_is_reported_once_and_the_rest_unchecked():
    assert SCHEMA.check({"metadata": {}}) == [
        Cause("spec", "Required value", "FieldValueRequired"),
        UNCHECKED,
    ]


@pytest.mark.parametrize("native", [False, True])
def test_the_number_of_causes_is_limited(native):
    schema = Schema({"type": "array", "items": {"type": "string", "maxLength": 1}}, native=native)
    causes = schema.check([1, "ab"] * 10_000)
    assert len(causes) == MAX_CAUSES
    assert [cause.field for cause in causes[:2]] == ["[0]", "[1]"]
    assert causes[-1] == UNCHECKED
    assert schema.check([1])[1:] == ([] if native else [UNCHECKED])


def test_all_unknown_fields_are_removed_and_the_first_reported():
    document = {"metadata": {}, **{f"field{number}": 1 for number in range(10_000)}}
    assert len(SCHEMA.prune(document)) == MAX_CAUSES
    assert list(document) == ["metadata"]
    [path] = SCHEMA.prune({"x" * 100_000: 1})
    assert len(path) < 2000


def test_long_values_are_truncated_in_messages():
    wrong = causes_of(memory="x" * 100_000, since="y" * 100_000)
    assert len(wrong) == 2
    assert all(len(cause.message) < 1000 for cause in wrong)


@pytest.fixture
def looked():
    """A schema, and the specs at which it has looked."""
    schema, specs = Schema(schema_of(Thing)), []
    real = schema._root.fields["spec"]

    class Spy(type(real)):
        def fits(self, value):
            specs.append(copied(value))
            return real.fits(value)

    schema._root.fields["spec"] = Spy(())
    return schema, specs


def spec_of(size, **fields):
    return {"selector": {"text": "x" * size}, **fields}


def test_a_valid_spec_is_checked_once(looked):
    schema, specs = looked
    for number in range(3):
        assert schema.fits({"metadata": {"name": f"n{number}"}, "spec": spec_of(500, replicas=1)})
    assert len(specs) == 1
    assert not schema.fits({"metadata": {"name": 1}, "spec": spec_of(500, replicas=1)})
    assert not schema.fits({"metadata": {}, "spec": spec_of(500, replicas=1), "more": 1})
    assert len(specs) == 1
    for replicas in (True, 1.0, "1", None):
        for _ in range(2):
            assert not schema.fits({"metadata": {}, "spec": spec_of(500, replicas=replicas)})
    assert len(specs) == 9


def test_the_cache_of_valid_specs_is_limited(looked):
    schema, specs = looked
    for size in (10, 1 << 20):
        specs.clear()
        for _ in range(2):
            assert schema.fits({"spec": spec_of(size)})
        assert len(specs) == 2
    for number in range(1000):
        assert schema.fits({"spec": spec_of(500, replicas=number)})
        assert schema.fits({"spec": spec_of(500, replicas=0)})
    assert len(schema._fitting) == 64
    assert [spec["replicas"] for spec in specs[2:]] == [*range(1000)]


def test_specs_without_work_are_detected():
    pod = {
        "metadata": {"name": "one", "creationTimestamp": "2024-01-31T12:00:00Z"},
        "spec": {
            "containers": [{"name": "one", "resources": {"requests": {"memory": "64M"}}}],
            "volumes": [{"name": "two", "emptyDir": {"sizeLimit": "1Gi"}}],
        },
    }
    schema = Schema(schema_of(Pod), native=True)
    assert schema.fits(pod)
    unchanged = frozenset({"spec"})
    for path, value in (
        (("metadata", "creationTimestamp"), "soon"),
        (("metadata", "labels"), {"one": None}),
        (("metadata", "finalizers"), ["one", 2]),
        (("metadata", "generation"), 2**63),
        (("spec", "hostname"), None),
        (("spec", "unheard"), "of"),
        (("spec", "containers"), [{"image": "one"}]),
        (("spec", "containers"), [{"name": "one", "resources": {"limits": {"cpu": "0.5"}}}]),
        (("spec", "volumes"), [{"name": "two", "emptyDir": {"sizeLimit": "1024Mi"}}]),
        (("spec", "volumes"), {"name": "two"}),
    ):
        other = copied(pod)
        other[path[0]][path[1]] = value
        assert not schema.fits(other)
        assert schema.fits(other, unchanged) == (path[0] == "spec")


def test_quantities_of_native_kinds_become_strings():
    schema = Schema(schema_of(Pod), native=True)
    pod = {
        "spec": {
            "containers": [
                {"name": "a", "resources": {"requests": {"cpu": 0.5, "memory": "1Gi", "x": 2}}}
            ],
            "volumes": [{"name": "v", "emptyDir": {"sizeLimit": 1024}}],
        }
    }
    assert schema.prune(pod) == []
    assert schema.check(pod) == []
    assert pod["spec"]["containers"][0]["resources"]["requests"] == {
        "cpu": "500m",
        "memory": "1Gi",
        "x": "2",
    }
    assert pod["spec"]["volumes"][0]["emptyDir"]["sizeLimit"] == "1024"


def test_kubernetes_own_kinds_have_schemas():
    for view in (Pod, Node, Secret, Lease, Event, EventsEvent):
        assert schema_of(view)["type"] == "object"
    events_event = Schema(schema_of(EventsEvent), native=True)
    event = {"metadata": {"name": "a"}, "eventTime": None, "regarding": {"kind": "Pod"}}
    assert events_event.prune(event) == []
    assert events_event.check(event) == []
    managed = {"metadata": {"managedFields": [{"fieldsV1": {"f:spec": {".": {}}}}]}}
    kept = copied(managed)
    assert Schema(schema_of(Node), native=True).prune(managed) == []
    assert managed == kept


def test_descriptions_come_from_docstrings():
    assert descriptions(Part) == (
        "A part.",
        {"name": "what it is called, by those who know it."},
    )
    about, fields = descriptions(Secret)
    assert about.startswith("Secret holds secret data of a certain type.")
    assert fields["type"].startswith("Used to facilitate programmatic handling of secret data.")
    assert fields["stringData"].startswith("stringData allows specifying non-binary secret data")


JUNK = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=3)
    | st.sampled_from(["On", "64M", "2024-01-31T12:00:00Z", "0001-01-01T00:00:00+01:00"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["name", "port", "labels", "x"]), inner, max_size=4)
    ),
    max_leaves=5,
)
SPECS = st.dictionaries(
    st.sampled_from(sorted(schema_of(Spec)["properties"])), JUNK, max_size=4
).map(lambda spec: {"selector": {}} | spec)
METADATA = st.dictionaries(
    st.sampled_from(sorted(schema_of(ObjectMeta)["properties"])), JUNK, max_size=2
)


@settings(max_examples=300)
@given(SPECS | JUNK, METADATA | JUNK)
def test_pruning_any_document_is_idempotent_and_views_read_valid_ones(spec, metadata):
    document = decode_json(msgspec.json.encode({"spec": spec, "metadata": metadata}))
    sent, fits = copied(document), SCHEMA.fits(document)
    unknown = SCHEMA.prune(document)
    pruned = copied(document)
    assert not fits or (same(pruned, sent) and not unknown and not SCHEMA.check(document))
    assert SCHEMA.prune(document) == []
    assert document == pruned
    causes = SCHEMA.check(document)
    assert all(cause.message for cause in causes)
    if not causes:
        msgspec.convert(document, Thing)
