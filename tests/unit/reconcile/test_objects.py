"""What loops read of an object, whatever it leaves out."""

import msgspec
import pytest
from lightkube.models.core_v1 import Node

from corral.reconcile.objects import (
    Partial,
    annotations_of,
    controller_uid,
    have_same_owners,
    is_ready,
    labels_of,
    owners_of,
)


def node(conditions=None, **metadata):
    status = {} if conditions is None else {"status": {"conditions": conditions}}
    return msgspec.convert({"metadata": {"name": "a", **metadata}, **status}, Node)


@pytest.mark.parametrize(
    ("conditions", "ready"),
    [
        (None, False),
        ([], False),
        ([{"type": "Ready", "status": "True"}], True),
        ([{"type": "Ready", "status": "False"}], False),
        ([{"type": "Other", "status": "True"}], False),
        ([{"type": "Other", "status": "False"}, {"type": "Ready", "status": "True"}], True),
    ],
)
def test_is_ready_by_the_condition(conditions, ready):
    assert is_ready(node(conditions)) is ready


def test_labels_and_annotations_may_be_left_out():
    assert labels_of(node()) == annotations_of(node()) == {}
    assert labels_of(node(labels={"a": "b"})) == {"a": "b"}
    assert annotations_of(node(annotations={"a": "b"})) == {"a": "b"}


def test_owner_references_have_controller_and_block_owner_deletion():
    owner = {"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "u"}
    for more, managed, blocks in (
        ({}, "", False),
        ({"controller": True}, "u", False),
        ({"blockOwnerDeletion": True}, "", True),
    ):
        view = msgspec.convert({"metadata": {"ownerReferences": [owner | more]}}, Partial)
        assert controller_uid(view) == managed
        assert [each.blocks for each in owners_of(view)] == [blocks]


@pytest.mark.parametrize("view", [Partial, Node])
def test_owners_are_compared_in_order_and_with_all_they_say(view):
    owner = {"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "u"}
    other, blocking = owner | {"uid": "v"}, owner | {"blockOwnerDeletion": True}

    def owned(*references):
        return msgspec.convert({"metadata": {"ownerReferences": list(references)}}, view)

    bare = msgspec.convert({"metadata": {}}, view)
    assert have_same_owners(owned(owner, other), owned(owner, other))
    assert have_same_owners(owned(), bare)
    assert not have_same_owners(owned(owner), bare)
    assert not have_same_owners(owned(owner), owned(blocking))
    assert not have_same_owners(owned(owner, other), owned(other, owner))
