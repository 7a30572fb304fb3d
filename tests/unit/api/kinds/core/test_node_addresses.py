"""Tests of a Node's addresses, the port of its kubelet, and its age."""

from datetime import UTC, datetime

import pytest
from lightkube.models.core_v1 import (
    DaemonEndpoint,
    Node,
    NodeAddress,
    NodeDaemonEndpoints,
    NodeStatus,
)
from lightkube.models.meta_v1 import ObjectMeta

from corral.api.kinds.core.node_addresses import by_age, internal_ips, kubelet_port


@pytest.mark.parametrize("node", [Node(), Node(status=NodeStatus())])
def test_an_empty_node_has_neither_address_nor_port(node):
    assert internal_ips(node) == []
    assert kubelet_port(node) == 0


def test_other_types_of_addresses_are_left_out():
    addresses = [
        NodeAddress(type=kind, address=address)
        for kind, address in (
            ("Hostname", "host2"),
            ("InternalIP", "192.0.2.2"),
            ("ExternalIP", "203.0.113.2"),
            ("InternalIP", "2001:db8::2"),
        )
    ]
    node = Node(status=NodeStatus(addresses=addresses))
    assert internal_ips(node) == ["192.0.2.2", "2001:db8::2"]


@pytest.mark.parametrize(("port", "expected"), [(10250, 10250), (0, 0)])
def test_a_port_of_zero_is_none(port, expected):
    """An API server in Go writes the empty endpoint of a node that has none."""
    endpoints = NodeDaemonEndpoints(kubeletEndpoint=DaemonEndpoint(Port=port))
    assert kubelet_port(Node(status=NodeStatus(daemonEndpoints=endpoints))) == expected


def test_the_oldest_node_comes_first_and_names_decide_between_equals():
    def node(name, second):
        created = datetime(2026, 1, 1, 0, 0, second, tzinfo=UTC)
        return Node(metadata=ObjectMeta(name=name, creationTimestamp=created))

    nodes = [node("c", 1), node("a", 2), node("b", 1)]
    assert [each.metadata.name for each in sorted(nodes, key=by_age)] == ["b", "c", "a"]
