"""Claims by host: who serves which, and which node the first host selects."""

import msgspec
import pytest
from lightkube.models.core_v1 import Node, PersistentVolume, PersistentVolumeClaim

from corral.api.kinds.cdi.population import POPULATE
from corral.api.kinds.storage.common import SELECTED_NODE, STORAGE_LABEL
from corral.api.object import Key
from corral.node.storage.claim_placement import ClaimPlacement, HostNodes

CLONE = {"kind": "PersistentVolumeClaim", "name": "golden"}
IMPORT = '{"source":{"pvc":{"name":"golden","namespace":"images"}}}'


class Cache:
    """What an informer holds."""

    def __init__(self, *objects):
        self._objects = {
            Key(one.metadata.namespace or "", one.metadata.name): one for one in objects
        }

    def get(self, key):
        return self._objects.get(key)

    def items(self):
        return self._objects.values()


def claim(name="data", namespace="default", volume="", annotations=None, **spec):
    metadata = {
        "name": name,
        "namespace": namespace,
        "uid": name,
        "resourceVersion": "7",
        "annotations": annotations or {},
    }
    document = {"metadata": metadata, "spec": {"volumeName": volume, **spec}}
    return msgspec.convert(document, PersistentVolumeClaim)


def volume(name, storage):
    expression = {"key": STORAGE_LABEL, "operator": "In", "values": [storage]}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    spec = {"nodeAffinity": {"required": terms}}
    return msgspec.convert({"metadata": {"name": name}, "spec": spec}, PersistentVolume)


def node(name, storage):
    metadata = {"name": name, "labels": {STORAGE_LABEL: storage}}
    return msgspec.convert({"metadata": metadata}, Node)


NODES = (node("one", "s1"), node("two", "s2"))


def placement(*claims, volumes=(), first=True):
    own = "one" if first else "two"
    return ClaimPlacement(
        HostNodes(is_own=own.__eq__, is_first=first),
        "s1" if first else "s2",
        claims=Cache(*claims),
        volumes=Cache(*volumes),
        nodes=Cache(*NODES),
    )


@pytest.mark.parametrize(
    ("selected", "by_first", "by_second"),
    [("one", True, False), ("two", False, True), ("three", False, False), ("", True, False)],
)
def test_exactly_one_host_serves_a_claim(selected, by_first, by_second):
    one = claim(annotations={SELECTED_NODE: selected} if selected else None)
    assert placement().serves(one) is by_first
    assert placement(first=False).serves(one) is by_second


def chosen(found):
    return found and found["metadata"]["annotations"][SELECTED_NODE]


@pytest.mark.parametrize("how", [{"dataSource": CLONE}, {"annotations": {POPULATE: IMPORT}}])
def test_a_clone_is_made_where_its_source_lies(how):
    namespace = "default" if "dataSource" in how else "images"
    golden = claim("golden", namespace, "pv")
    copy = claim(**how)
    assert chosen(placement(golden, volumes=[volume("pv", "s2")]).selection(copy)) == "two"
    assert placement(golden, volumes=[volume("pv", "s1")]).selection(copy) is None
    assert placement(golden, volumes=[volume("pv", "s2")], first=False).selection(copy) is None


def test_a_clone_follows_the_selected_node_of_a_source_without_a_volume():
    copy = claim(dataSource=CLONE)
    golden = claim("golden", annotations={SELECTED_NODE: "two"})
    assert chosen(placement(golden).selection(copy)) == "two"
    assert placement(claim("golden")).selection(copy) is None
    assert placement().selection(copy) is None


def test_the_node_of_a_claim_is_selected_again_when_it_was_deleted():
    lost = claim(annotations={SELECTED_NODE: "three"})
    assert placement().selection(lost) == {
        "metadata": {"resourceVersion": "7", "annotations": {SELECTED_NODE: None}}
    }
    assert placement(first=False).selection(lost) is None
    for present in ("one", "two"):
        assert placement().selection(claim(annotations={SELECTED_NODE: present})) is None
