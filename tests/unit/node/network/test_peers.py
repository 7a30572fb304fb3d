"""Which other hosts there are, decided from their Nodes."""

import base64
from ipaddress import ip_address, ip_network

import msgspec
import pytest
from lightkube.models.core_v1 import Node

from corral.api.kinds.core.node_addresses import WIREGUARD_KEY, WIREGUARD_PORT
from corral.node.network.peers import (
    Peer,
    internal_address,
    mac_of,
    peers,
    pod_ranges,
    tunnel_address,
)

OWN = ip_address("192.0.2.1")
OTHER = ip_address("192.0.2.2")


KEY = base64.b64encode(b"k" * 32).decode()


def node(name, address, *ranges, age=0, key="", port=""):
    addresses = [{"type": "Hostname", "address": name}]
    if address:
        addresses.append({"type": "InternalIP", "address": str(address)})
    metadata = {"name": name, "creationTimestamp": f"2026-01-01T00:00:{age:02}Z"}
    metadata["annotations"] = {WIREGUARD_KEY: key, WIREGUARD_PORT: port}
    document = {
        "metadata": metadata,
        "spec": {"podCIDRs": list(ranges)},
        "status": {"addresses": addresses},
    }
    return msgspec.convert(document, Node)


def networks(*ranges):
    return tuple(map(ip_network, ranges))


def test_other_hosts_are_peers_with_the_ranges_of_all_their_nodes():
    nodes = [
        node("own", OWN, "10.244.0.0/24"),
        node("a", OTHER, "10.244.1.0/24", "fd00::100/120"),
        node("b", OTHER, "10.244.2.0/24"),
    ]
    expected = networks("10.244.1.0/24", "fd00::100/120", "10.244.2.0/24")
    assert peers(nodes, OWN) == {OTHER: Peer(OTHER, expected)}


@pytest.mark.parametrize(
    "incomplete",
    [
        node("a", None, "10.244.1.0/24"),
        node("a", OTHER),
        node("a", "nowhere", "10.244.1.0/24"),
        node("a", OTHER, "10.244.1.1/24"),
    ],
    ids=["no address", "no range", "bad address", "bad range"],
)
def test_nodes_without_address_or_range_are_no_peers(incomplete):
    assert peers([incomplete], OWN) == {}


@pytest.mark.parametrize(("age", "kept"), [(1, False), (9, True)])
def test_an_overlapping_range_belongs_to_the_older_node(age, kept):
    nodes = [node("z", OTHER, "10.244.0.0/24", age=5), node("own", OWN, "10.244.0.0/16", age=age)]
    assert (OTHER in peers(nodes, OWN)) == kept


def test_nodes_of_equal_age_are_ordered_by_name():
    third = ip_address("192.0.2.3")
    nodes = [node("b", OTHER, "10.244.0.0/24"), node("a", third, "10.244.0.0/25")]
    assert peers(nodes, OWN).keys() == {third}


def test_invalid_fields_of_nodes_are_ignored():
    assert internal_address(Node()) is None
    assert pod_ranges(Node()) == []
    mixed = node("a", OTHER, "10.244.1.0/24", "many")
    assert pod_ranges(mixed) == list(networks("10.244.1.0/24"))


def test_mac_addresses_are_derived_from_ip_addresses():
    mac = mac_of(OTHER)
    assert Peer(OTHER, ()).mac == mac == mac_of(ip_address("192.0.2.2"))
    assert mac != mac_of(OWN)
    first = int(mac.split(":")[0], 16)
    assert first & 0b11 == 0b10, "locally administered, unicast"
    assert tunnel_address(ip_network("10.244.1.0/24")) == ip_address("10.244.1.0")


def test_a_key_is_that_of_the_host_which_had_it_first():
    nodes = [
        node("thief", "192.0.2.3", "10.244.3.0/24", age=2, key=KEY),
        node("first", OTHER, "10.244.2.0/24", age=1, key=KEY),
    ]
    keys = {address: each.key for address, each in peers(nodes, OWN).items()}
    assert keys == {OTHER: b"k" * 32, ip_address("192.0.2.3"): None}


@pytest.mark.parametrize("text", ["", "k", "a2V5", KEY + "AAAA", "é" * 44, KEY[:-1]])
def test_a_key_that_cannot_be_read_is_none(text):
    assert peers([node("n", OTHER, "10.244.2.0/24", key=text)], OWN)[OTHER].key is None


@pytest.mark.parametrize(
    ("text", "port"),
    [("4500", 4500), ("65535", 65535)]
    + [(text, 51820) for text in ("", "0", "65536", "-1", "4.5", "٣", "9" * 5000)],
)
def test_a_port_that_cannot_be_read_is_the_default(text, port):
    nodes = [node("n", OTHER, "10.244.2.0/24", key=KEY, port=text)]
    assert peers(nodes, OWN)[OTHER].port == port
