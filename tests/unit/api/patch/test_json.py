import jsonpatch
import jsonpointer
import pytest
from hypothesis import given, settings, strategies as st

from corral.api.encoding import DEEPEST, copied, same
from corral.api.errors import ApiError, BadRequest, Invalid, TooLarge
from corral.api.patch.json import MAX_OPERATIONS, json_patch, unknown_members

KEYS = st.sampled_from(["a", "b", "~/"])
VALUES = st.recursive(
    st.integers(0, 3) | st.just("x"),
    lambda inner: st.dictionaries(KEYS, inner, max_size=3) | st.lists(inner, max_size=3),
    max_leaves=8,
)
PATHS = st.lists(st.sampled_from(["a", "b", "~0~1", "0", "1", "-"]), min_size=1, max_size=3).map(
    lambda steps: "/" + "/".join(steps)
)
OPERATIONS = st.one_of(
    st.builds(
        lambda op, path, value: {"op": op, "path": path, "value": value},
        st.sampled_from(["add", "replace", "test"]),
        PATHS,
        VALUES,
    ),
    st.builds(lambda path: {"op": "remove", "path": path}, PATHS),
    st.builds(
        lambda op, source, path: {"op": op, "from": source, "path": path},
        st.sampled_from(["move", "copy"]),
        PATHS,
        PATHS,
    ),
)


@pytest.mark.parametrize(
    ("document", "operations", "patched"),
    [
        ({"a": 1}, [{"op": "add", "path": "/b", "value": None}], {"a": 1, "b": None}),
        ({"a": [1, 3]}, [{"op": "add", "path": "/a/1", "value": 2}], {"a": [1, 2, 3]}),
        ({"a": [1]}, [{"op": "add", "path": "/a/-", "value": 2}], {"a": [1, 2]}),
        ({"a": [1]}, [{"op": "add", "path": "/a/1", "value": 2}], {"a": [1, 2]}),
        ({"a": [1, 2]}, [{"op": "remove", "path": "/a/0"}], {"a": [2]}),
        ({"a/b": 1, "m~n": 2}, [{"op": "remove", "path": "/a~1b"}], {"m~n": 2}),
        ({"m~n": 2}, [{"op": "replace", "path": "/m~0n", "value": 3}], {"m~n": 3}),
        ({"~1": 2}, [{"op": "test", "path": "/~01", "value": 2}], {"~1": 2}),
        ({"": 1}, [{"op": "replace", "path": "/", "value": 2}], {"": 2}),
        ({"a": 1}, [{"op": "replace", "path": "", "value": {"b": 2}}], {"b": 2}),
        ({"a": {"b": 1}}, [{"op": "move", "from": "/a/b", "path": "/c"}], {"a": {}, "c": 1}),
        ({"a": [1, 2]}, [{"op": "copy", "from": "/a/1", "path": "/a/0"}], {"a": [2, 1, 2]}),
        ({"a": 1}, [{"op": "test", "path": "/b", "value": None}], {"a": 1}),
        ({"a": 1}, [{"op": "test", "path": "/b"}], {"a": 1}),
        ({"a": 1}, [], {"a": 1}),
        ({"a": 1}, [{"op": "replace", "path": "/b", "value": 2}], {"a": 1, "b": 2}),
        ({"a": 1}, [{"op": "copy", "from": "/b", "path": "/c"}], {"a": 1, "c": None}),
        ({"a": 1}, [{"op": "add", "path": "/b"}], {"a": 1, "b": None}),
        ({"a": [1, 2]}, [{"op": "replace", "path": "/a/-1", "value": 3}], {"a": [1, 3]}),
        ({"a": [1, 2]}, [{"op": "add", "path": "/a/-1", "value": 3}], {"a": [1, 2, 3]}),
        ({"a": [1, 2]}, [{"op": "remove", "path": "/a/-2"}], {"a": [2]}),
        ({"a": [[1]]}, [{"op": "remove", "path": "/a/-1/00"}], {"a": [[]]}),
        ({"x": 0}, [{"op": "add", "path": "data/x", "value": 1}], {"x": 1}),
    ],
)
def test_json_patches(document, operations, patched):
    assert json_patch(document, operations) == patched


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "remove", "path": "/b"},
        {"op": "replace", "path": "/b/c", "value": 1},
        {"op": "replace", "path": "/a/b", "value": 1},
        {"op": "replace", "path": "/list/1", "value": 1},
        {"op": "replace", "path": "/list/-", "value": 1},
        {"op": "add", "path": "a", "value": 1},
        {"op": "add", "path": "", "value": {}},
        {"op": "move", "from": "/b", "path": "/c"},
        {"op": "add", "path": "/b/c", "value": 1},
        {"op": "add", "path": "/list/2", "value": 1},
        {"op": "add", "path": "/list/-3", "value": 1},
        {"op": "add", "path": "/list/x", "value": 1},
        {"op": "remove", "path": "/list/-"},
        {"op": "test", "path": "/a", "value": True},
        {"op": "test", "path": "/b", "value": 2},
        {"op": "copy", "from": "/b/c", "path": "/c"},
        {"op": "move", "from": "/list", "path": "/list/0"},
        {"op": "remove", "path": ""},
        {"op": "replace", "path": "", "value": []},
        {"op": "add", "path": "/a/b", "value": 1},
    ],
)
def test_an_impossible_operation_is_invalid_and_names_its_path(operation):
    with pytest.raises(Invalid) as refusal:
        json_patch({"a": 1, "list": [0]}, [operation])
    assert refusal.value.message == (
        "the server rejected our request due to an error in our request"
    )
    assert [cause.field for cause in refusal.value.details.causes] in (
        [operation["path"]],
        [operation.get("from")],
    )


@pytest.mark.parametrize(
    "operations",
    [
        {},
        None,
        "add",
        [1],
        [{"op": ["add"], "path": "/a"}],
        [{"op": "add", "path": 1, "value": 1}],
    ],
)
def test_an_invalid_json_patch_is_a_bad_request(operations):
    with pytest.raises(BadRequest, match=r"^error decoding patch: "):
        json_patch({"a": 1}, operations)


@pytest.mark.parametrize(
    ("operation", "why"),
    [
        ({}, "Unexpected kind: unknown"),
        ({"op": "grow", "path": "/a"}, "Unexpected kind: grow"),
        ({"op": "add", "value": 1}, "operation missing path field: missing value"),
        ({"op": "move", "path": "/a"}, "operation missing from field: missing value"),
    ],
)
def test_an_incomplete_operation_is_invalid(operation, why):
    with pytest.raises(Invalid) as refusal:
        json_patch({"a": 1}, [operation])
    assert refusal.value.details.causes[0].message == why


def test_unknown_members_of_operations_are_found():
    operations = [{"op": "add", "path": "/a", "more": 1}, 1, {"from": "/b", "value": 1, "x": 0}]
    assert unknown_members(operations) == ["[0].more", "[2].x"]
    assert unknown_members({"more": 1}) == []


def test_too_many_operations_are_rejected():
    operations = [{"op": "test", "path": "/a", "value": 1}] * (MAX_OPERATIONS + 1)
    with pytest.raises(TooLarge, match=r"is 10000, got 10001$"):
        json_patch({"a": 1}, operations)


def test_copied_bytes_are_limited():
    double = {"op": "copy", "from": "/a", "path": "/a/-"}
    with pytest.raises(Invalid) as refusal:
        json_patch({"a": ["x" * 1000]}, [double] * 50)
    assert "exceeding the limit" in refusal.value.details.causes[0].message


def test_patching_a_long_list_is_fast():
    operations = [{"op": "add", "path": "/a/0", "value": 0}] * MAX_OPERATIONS
    with pytest.raises(Invalid) as refusal:
        json_patch({"a": [0] * 300_000}, operations)
    assert "too many items" in refusal.value.details.causes[0].message


def test_the_depth_of_a_patched_document_is_limited():
    dig = [{"op": "add", "path": "/a" * depth, "value": {}} for depth in range(1, 400)]
    with pytest.raises(Invalid):
        json_patch({}, dig)
    swallow = [
        {"op": "move", "from": "/a", "path": "/b"},
        {"op": "add", "path": "/a", "value": {}},
        {"op": "move", "from": "/b", "path": "/a/a"},
    ]
    with pytest.raises(Invalid):
        json_patch({"a": {}}, swallow * 3000)


def _plain(operation, document):
    """An operation in the words of the RFC: what an object lacks is added, and copied as null."""
    try:
        parent, key = jsonpointer.JsonPointer(operation.get("from", operation["path"])).to_last(
            document
        )
    except jsonpointer.JsonPointerException:
        return operation
    if isinstance(parent, dict) and key not in parent:
        path = operation["path"]
        return {
            "replace": operation | {"op": "add"},
            "copy": {"op": "add", "path": path, "value": None},
        }.get(operation["op"], operation)
    return operation


@settings(max_examples=300)
@given(st.dictionaries(KEYS, VALUES, max_size=3), st.lists(OPERATIONS, max_size=4))
def test_patches_agree_with_the_library_jsonpatch(document, operations):
    before = copied(document), copied(operations)
    try:
        patched = json_patch(document, operations)
    except ApiError:
        patched = None
    assert same([document, operations], list(before))
    try:
        expected = copied(document)
        for operation in copied(operations):
            expected = jsonpatch.apply_patch(expected, [_plain(operation, expected)])
    except (jsonpatch.JsonPatchException, jsonpointer.JsonPointerException, TypeError):
        expected = None
    assert same(patched, expected)


class Unsplit(str):
    """A path that nobody may split: it has a million steps."""

    __slots__ = ()

    def split(self, *_arguments):
        raise AssertionError("a path without end was split")


LONG = "x" * 50_000


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "remove", "path": Unsplit("/a" * 100_000)},
        {"op": "add", "path": Unsplit("/" * 100_000), "value": 1},
        {"op": "copy", "from": Unsplit("/a" * 100_000), "path": "/b"},
        {"op": "remove", "path": f"/{LONG}"},
        {"op": "remove", "path": f"/{LONG}/a"},
        {"op": "remove", "path": f"/list/{LONG}"},
        {"op": "add", "path": f"/list/{LONG}", "value": 1},
        {"op": "replace", "path": f"/list/{LONG}", "value": 1},
        {"op": "test", "path": f"/{LONG}", "value": 1},
        {"op": "test", "path": f"/list/{LONG}", "value": 1},
        {"op": "move", "from": f"/{LONG}", "path": "/a"},
        {"op": "move", "from": f"/{LONG}/a", "path": "/a"},
    ],
)
def test_messages_truncate_long_paths(operation):
    with pytest.raises(Invalid) as refused:
        json_patch({"list": [1]}, [operation])
    (cause,) = refused.value.details.causes
    assert len(cause.message) < 600
    assert len(cause.field) < 1100


def test_a_path_may_be_as_deep_as_a_document():
    document, path = {}, ""
    inner = document
    for _ in range(DEEPEST - 1):
        inner["a"] = inner = {}
        path += "/a"
    json_patch(document, [{"op": "add", "path": f"{path}/b", "value": 1}])
    with pytest.raises(Invalid, match="error in our request"):
        json_patch(document, [{"op": "add", "path": f"{path}/b/c", "value": 1}])
