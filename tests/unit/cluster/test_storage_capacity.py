"""CSIStorageCapacity objects, decided from Nodes and classes."""

import msgspec
import pytest
from lightkube.models.core_v1 import Node
from lightkube.models.storage_v1 import StorageClass

from corral.api.kinds.storage.common import (
    CORRAL_PROVISIONER,
    SHARED_CAPACITY,
    SHARED_LABEL,
    SHARED_PROVISIONER,
    STORAGE_CAPACITY,
    STORAGE_LABEL,
)
from corral.cluster.storage_capacity import NAMESPACE, capacities


def node(name, storage="a", left="1000"):
    labels = {STORAGE_LABEL: storage} if storage else {}
    annotations = {STORAGE_CAPACITY: left} if left else {}
    document = {"metadata": {"name": name, "labels": labels, "annotations": annotations}}
    return msgspec.convert(document, Node)


def storage_class(name, provisioner=CORRAL_PROVISIONER, **parameters):
    document = {"metadata": {"name": name}, "provisioner": provisioner, "parameters": parameters}
    return msgspec.convert(document, StorageClass)


def observed_capacities(nodes, classes):
    """The objects as (storage, class, capacity)."""
    return {
        (
            each["nodeTopology"]["matchLabels"][STORAGE_LABEL],
            each["storageClassName"],
            each["capacity"],
        )
        for each in capacities(nodes, classes).values()
    }


def test_each_storage_has_an_object_for_each_class():
    nodes = [node("one"), node("two", "b", "5")]
    classes = [storage_class("corral"), storage_class("corral-wait")]
    assert observed_capacities(nodes, classes) == {
        ("a", "corral", "1000"),
        ("a", "corral-wait", "1000"),
        ("b", "corral", "5"),
        ("b", "corral-wait", "5"),
    }
    assert {key.namespace for key in capacities(nodes, classes)} == {NAMESPACE}


def test_nodes_of_one_host_share_an_object():
    assert len(capacities([node("one"), node("two")], [storage_class("corral")])) == 1


@pytest.mark.parametrize(
    "other",
    [
        storage_class("fast", "csi.example.com"),
        storage_class("thin", overcommitPercent="200"),
    ],
    ids=["of another provisioner", "overcommitting"],
)
def test_other_classes_have_none(other):
    assert observed_capacities([node("one")], [other]) == set()


@pytest.mark.parametrize(
    "incomplete",
    [node("one", ""), node("one", left=""), node("one", left="much"), node("one", left="-1")],
)
def test_nodes_without_a_measured_storage_have_none(incomplete):
    assert observed_capacities([incomplete], [storage_class("corral")]) == set()


def test_names_are_stable():
    nodes, classes = [node("one")], [storage_class("corral")]
    assert capacities(nodes, classes).keys() == capacities([node("one", left="2")], classes).keys()


def test_a_shared_directory_has_one_object_for_all_of_its_nodes():
    labels, left = {SHARED_LABEL: "s"}, {SHARED_CAPACITY: "7"}
    first = {"metadata": {"name": "one", "labels": labels, "annotations": left}}
    other = {"metadata": {"name": "two", "labels": labels}}
    nodes = [msgspec.convert(each, Node) for each in (first, other)]
    classes = [storage_class("corral"), storage_class("corral-shared", SHARED_PROVISIONER)]
    (made,) = capacities(nodes, classes).values()
    assert made["nodeTopology"] == {"matchLabels": labels}
    assert (made["storageClassName"], made["capacity"]) == ("corral-shared", "7")
