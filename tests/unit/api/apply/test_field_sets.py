"""Sets of field paths: the operations of sets, on trees."""

import pytest
from hypothesis import given, strategies as st

from corral.api.apply.field_sets import (
    are_valid,
    difference,
    has,
    inside,
    intersection,
    paths,
    union,
    union_of,
)

STEPS = st.sampled_from(["f:a", "f:b", 'k:{"name":"x"}', "v:1"])
TREES = st.recursive(
    st.just({}),
    lambda below: st.dictionaries(STEPS, below, min_size=1, max_size=3).flatmap(
        lambda tree: st.sampled_from([tree, {".": {}, **tree}])
    ),
    max_leaves=8,
)
SETS = st.one_of(st.just({}), st.dictionaries(STEPS, TREES, max_size=3))


def members(fields, before=()):
    """The paths of a set, the slow and certain way."""
    found = set()
    for step, below in fields.items():
        path = (*before, step)
        if has(below):
            found.add(path)
        found |= members(inside(below), path)
    return found


@given(SETS, SETS)
def test_the_operations_are_those_of_sets_of_paths(one, other):
    assert members(union(one, other)) == members(one) | members(other)
    assert members(difference(one, other)) == members(one) - members(other)
    assert members(intersection(one, other)) == members(one) & members(other)


@given(SETS, SETS)
def test_empty_results_have_no_paths(one, other):
    for left in (difference(one, other), intersection(one, other)):
        assert bool(left) == bool(members(left))


@given(SETS, SETS)
def test_arguments_are_not_changed(one, other):
    before = repr((one, other))
    union(one, other), difference(one, other), intersection(one, other)
    assert repr((one, other)) == before


@pytest.mark.parametrize(
    ("fields", "shown"),
    [
        ({"f:spec": {"f:replicas": {}}}, [".spec.replicas"]),
        ({"f:data": {".": {}, "f:b": {}, "f:a": {}}}, [".data", ".data.a", ".data.b"]),
        (
            {"f:ports": {'k:{"port":80,"protocol":"TCP"}': {".": {}, "f:name": {}}}},
            ['.ports[port=80,protocol="TCP"]', '.ports[port=80,protocol="TCP"].name'],
        ),
        ({"f:finalizers": {'v:"a/b"': {}}}, ['.finalizers[="a/b"]']),
        ({"f:list": {"i:3": {}}}, [".list[3]"]),
        ({}, []),
    ],
)
def test_paths_are_formatted_as_in_messages(fields, shown):
    assert list(paths(fields)) == shown


@pytest.mark.parametrize(
    ("fields", "valid"),
    [
        ({}, True),
        ({"f:a": {".": {}, "f:b": {}}}, True),
        ({'k:{"name":"x"}': {}}, True),
        ({"v:1": {}, "i:0": {}}, True),
        ([], False),
        ({"a": {}}, False),
        ({"x:a": {}}, False),
        ({"f:a": 1}, False),
        ({"f:a": {".": {"f:b": {}}}}, False),
        ({"k:name": {}}, False),
        ({"k:{}": {}}, False),
        ({"i:x": {}}, False),
        ({"v:" + "[" * 5000: {}}, False),
    ],
)
def test_invalid_field_sets_are_detected(fields, valid):
    assert are_valid(fields) == valid


@given(st.lists(SETS, max_size=5))
def test_union_of_many_sets(sets):
    assert members(union_of(sets)) == set().union(*map(members, sets))
