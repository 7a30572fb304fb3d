import pytest
from hypothesis import given, strategies as st

from corral.api.encoding import copied
from corral.api.errors import BadRequest
from corral.api.patch.merge import difference, merge_patch

KEYS = st.sampled_from("abc")
VALUES = st.recursive(
    st.none() | st.integers(0, 3) | st.lists(st.integers(0, 3), max_size=2),
    lambda inner: st.dictionaries(KEYS, inner, max_size=3),
)
OBJECTS = st.dictionaries(KEYS, VALUES, max_size=3)


@pytest.mark.parametrize(
    ("target", "patch", "merged"),
    [
        # the examples of RFC 7386 whose targets are objects
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ],
)
def test_merge_patches(target, patch, merged):
    assert merge_patch(target, patch) == merged


@pytest.mark.parametrize("patch", [None, [], "a", 1])
def test_a_patch_must_be_an_object(patch):
    with pytest.raises(BadRequest, match=r"^Invalid JSON Patch"):
        merge_patch({}, patch)


@given(OBJECTS, OBJECTS)
def test_a_merge_patch_is_idempotent_and_changes_no_argument(target, patch):
    before = copied(target), copied(patch)
    merged = merge_patch(target, patch)
    assert (target, patch) == before
    assert merge_patch(merged, patch) == merged


@given(OBJECTS, OBJECTS)
def test_fields_missing_in_a_patch_stay(target, patch):
    merged = merge_patch(target, patch)
    assert {key: merged[key] for key in target.keys() - patch.keys()} == {
        key: target[key] for key in target.keys() - patch.keys()
    }
    assert not [key for key, value in patch.items() if value is None and key in merged]


FULL = st.dictionaries(
    KEYS,
    st.recursive(
        st.integers(0, 3) | st.lists(st.integers(0, 3), max_size=2),
        lambda inner: st.dictionaries(KEYS, inner, max_size=3),
    ),
    max_size=3,
)


@given(OBJECTS, FULL)
def test_the_difference_patches_one_document_into_the_other(before, after):
    patch = difference(before, after)
    assert merge_patch(copied(before), patch) == after
    assert (patch == {}) is (before == after)


def test_the_difference_has_only_changed_fields():
    before = {"a": 1, "b": {"c": 1, "d": [1], "e": {}}, "gone": {"x": 1}}
    after = {"a": 1, "b": {"c": 2, "d": [1], "f": 3}}
    assert difference(before, after) == {"b": {"c": 2, "e": None, "f": 3}, "gone": None}
