"""The hosts from which an image is requested, their order, and the way to them."""

import msgspec
import pytest
from bench.cluster import free_port
from lightkube.models.core_v1 import Node

from corral.api.errors import Unavailable
from corral.api.kinds.storage.common import SHARED_LABEL, STORAGE_LABEL
from corral.client.kubeconfig import Kubeconfig
from corral.node.images.peer import Peer
from corral.node.images.peers import MAX_ASKED, Peers, url_of

NAME = "docker.io/lab/debian:12"


def node(name, *, age=0, images=(NAME,), ready="True", address="192.0.2.1", port=10250):
    status = {
        "addresses": [{"type": "InternalIP", "address": address}] if address else [],
        "conditions": [{"type": "Ready", "status": ready}],
        "images": [{"names": list(images), "sizeBytes": 1}],
    }
    if port:
        status["daemonEndpoints"] = {"kubeletEndpoint": {"Port": port}}
    metadata = {"name": name, "creationTimestamp": f"2026-01-01T00:00:{age:02}Z"}
    return msgspec.convert({"metadata": metadata, "status": status}, Node)


def names_of(*nodes, own=(), first=None, reach=None):
    peers = Peers(lambda: nodes, own=lambda name: name in own, reach=reach, first=first)
    return [peer.name for peer in peers(NAME)]


def test_the_first_host_is_tried_before_nodes_with_the_image():
    nodes = [node("young", age=9), node("old", age=1), node("other", images=["docker.io/lab/b:1"])]
    assert names_of(*nodes) == ["node old", "node young"]
    assert names_of(*nodes, first=Peer(None)) == ["the first host", "node old", "node young"]


@pytest.mark.parametrize(
    "left_out",
    [
        node("silent", ready="Unknown"),
        node("of-this-host"),
        node("of-the-first-host", port=0),
        node("unreachable", address=""),
    ],
    ids=lambda each: each.metadata.name,
)
def test_nodes_that_cannot_answer_are_left_out(left_out):
    assert names_of(left_out, node("other"), own=["of-this-host"]) == ["node other"]


def test_the_number_of_hosts_to_try_is_limited():
    assert len(names_of(*(node(f"node{number}", age=number) for number in range(9)))) == MAX_ASKED


@pytest.mark.parametrize(
    ("address", "url"),
    [("192.0.2.7", "https://192.0.2.7:99"), ("2001:db8::7", "https://[2001:db8::7]:99")],
)
def test_a_node_is_reached_at_its_own_port(address, url):
    assert url_of(node("one", address=address, port=99)) == url


async def test_a_node_that_does_not_answer_is_named():
    port = free_port()
    one = node("one", address="127.0.0.1", port=port)
    peers = Peers(
        lambda: [one],
        own=lambda _: False,
        reach=lambda url: Kubeconfig(server=url, insecure=True),
    )
    (peer,) = peers(NAME)
    with pytest.raises(Unavailable, match=f"node one at https://127.0.0.1:{port} does not"):
        async with peer.download("/", {}):
            pass


def with_label(each, key, value):
    each.metadata.labels = {key: value}
    return each


def host_of(storage, *nodes, own=(), first=None):
    peers = Peers(lambda: nodes, own=lambda name: name in own, reach=None, first=first)
    found = peers.with_storage(storage)
    return found and found.name


def test_the_host_of_a_storage_is_found_by_the_label_of_its_node():
    nodes = [
        with_label(node("one", port=0), STORAGE_LABEL, "s1"),
        with_label(node("two"), STORAGE_LABEL, "s2"),
        with_label(node("silent", ready="Unknown"), STORAGE_LABEL, "s3"),
        with_label(node("here"), SHARED_LABEL, "shared"),
        with_label(node("there", age=9), SHARED_LABEL, "shared"),
        node("none"),
    ]
    first = Peer(None)
    assert host_of("s1", *nodes, first=first) == "the first host"
    assert host_of("s1", *nodes) is None
    assert host_of("s2", *nodes) == "node two"
    assert host_of("s3", *nodes) is None
    assert host_of("shared", *nodes, own=["here"]) == "node there"
    assert host_of("s4", *nodes) is None


def test_a_node_is_reached_at_its_port_or_through_the_api_server():
    nodes = [node("first", port=0), node("two")]
    peers = Peers(lambda: nodes, own=lambda _: False, reach=str, server="https://192.0.2.9:6443")
    assert peers.reach("two") == "https://192.0.2.1:10250"
    assert peers.reach("first") == "https://192.0.2.9:6443"
    assert peers.reach("unknown") is None
    here = Peers(lambda: nodes, own=lambda _: False, reach=str)
    assert here.reach("first") is None
