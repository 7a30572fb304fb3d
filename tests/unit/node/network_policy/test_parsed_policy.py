"""Policies as they are read: selectors, ports, and blocks less what they except."""

from ipaddress import ip_address, ip_network
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given, strategies as st
from lightkube.models.core_v1 import Pod
from lightkube.models.networking_v1 import IPBlock, NetworkPolicy

from corral.api.errors import BadRequest
from corral.node.network_policy.parsed_policy import (
    AddressRange,
    PodInfo,
    PortName,
    PortRange,
    address_ranges,
    parse_policy,
    pod_info,
)

PODS = [ip_network("10.244.0.0/16"), ip_network("fd00:10:244::/56")]


def policy(spec, name="p"):
    document = {"metadata": {"name": name, "namespace": "default"}, "spec": spec}
    return parse_policy(msgspec.convert(document, NetworkPolicy))


def member(namespace="default", **labels):
    return PodInfo(namespace, labels, ("10.244.0.5",), ())


def test_policies_are_for_ingress_by_default():
    assert list(policy({"podSelector": {}}).rules) == ["ingress"]
    assert list(policy({"podSelector": {}, "egress": [{}]}).rules) == ["ingress", "egress"]
    assert list(policy({"podSelector": {}, "policyTypes": ["Egress"]}).rules) == ["egress"]


def test_policies_select_pods_of_their_namespace():
    web = policy({"podSelector": {"matchLabels": {"app": "web"}}})
    assert web.selects(member(app="web"))
    assert not web.selects(member(app="db"))
    assert not web.selects(member("other", app="web"))


@pytest.mark.parametrize(
    ("peer", "expected"),
    [
        ({"podSelector": {"matchLabels": {"app": "web"}}}, ["default/web"]),
        ({"podSelector": {}}, ["default/db", "default/web"]),
        ({"namespaceSelector": {}}, ["default/db", "default/web", "team/db", "team/web"]),
        ({"namespaceSelector": {"matchLabels": {"team": "a"}}}, ["team/db", "team/web"]),
        (
            {
                "namespaceSelector": {"matchLabels": {"team": "a"}},
                "podSelector": {"matchLabels": {"app": "db"}},
            },
            ["team/db"],
        ),
    ],
)
def test_peers_are_selected_by_labels_of_pods_and_namespaces(peer, expected):
    (rule,) = policy({"podSelector": {}, "ingress": [{"from": [peer]}]}).rules["ingress"]
    namespaces = {"default": {}, "team": {"team": "a"}}
    found = [
        f"{namespace}/{app}"
        for namespace in namespaces
        for app in ("db", "web")
        if rule.peers[0].matches("default", member(namespace, app=app), namespaces)
    ]
    assert found == expected


def test_ports_are_numbers_ranges_names_or_whole_protocols():
    ports = [
        {"port": 80},
        {"port": 8000, "endPort": 8010, "protocol": "UDP"},
        {"protocol": "SCTP"},
        {"port": "http", "protocol": "TCP"},
    ]
    (rule,) = policy({"podSelector": {}, "ingress": [{"ports": ports}]}).rules["ingress"]
    assert rule.all_peers
    assert not rule.all_ports
    assert rule.ports == (
        PortRange("tcp", 80, 80),
        PortRange("udp", 8000, 8010),
        PortRange("sctp", 0, 65535),
    )
    assert rule.port_names == (PortName("tcp", "http"),)


def test_digests_depend_on_the_content():
    one, two = policy({"podSelector": {}}), policy({"podSelector": {"matchLabels": {"a": "b"}}})
    assert one.digest == policy({"podSelector": {}}).digest
    assert len({one.digest, two.digest, policy({"podSelector": {}}, "other").digest}) == 3


def test_invalid_selectors_are_rejected():
    selector = {"matchExpressions": [{"key": "a", "operator": "Like"}]}
    with pytest.raises(BadRequest, match="Like"):
        policy({"podSelector": selector})


@given(
    st.lists(
        st.tuples(
            st.integers(0, 255),
            st.integers(24, 32),
            st.lists(st.tuples(st.integers(0, 255), st.integers(24, 32)), max_size=4),
        ),
        max_size=4,
    ),
    st.integers(0, 255),
)
def test_ip_blocks_have_exceptions(blocks, last):
    def network(number, length):
        return ip_network(f"10.0.0.{number}/{length}", strict=False)

    peers = [
        IPBlock(str(network(at, length)), except_=[str(network(*hole)) for hole in holes])
        for at, length, holes in blocks
    ]
    address = ip_address(f"10.0.0.{last}")
    expected = any(
        address in network(at, length) and not any(address in network(*hole) for hole in holes)
        for at, length, holes in blocks
    )
    found = address_ranges(peers, 4)
    assert any(span.first <= int(address) <= span.last for span in found) == expected
    assert all(one.last + 1 < two.first for one, two in pairwise(found))


def test_ip_blocks_match_their_ip_version_only():
    blocks = [IPBlock("0.0.0.0/0"), IPBlock("fd00::/120", except_=["fd00::80/121", "10.0.0.0/8"])]
    assert address_ranges(blocks, 4) == [AddressRange(0, 2**32 - 1)]
    first = int(ip_address("fd00::"))
    assert address_ranges(blocks, 6) == [AddressRange(first, first + 127)]


def test_pods_with_addresses_of_the_pod_range_are_members():
    def pod(**status):
        ports = [{"name": "http", "containerPort": 80}, {"containerPort": 9}]
        containers = [{"name": "compute", "ports": ports}]
        metadata = {"name": "p", "namespace": "default", "labels": {"app": "web"}}
        document = {"metadata": metadata, "spec": {"containers": containers}, "status": status}
        return pod_info(msgspec.convert(document, Pod), PODS)

    both = [{"ip": "10.244.0.5"}, {"ip": "fd00:10:244:0::5"}]
    assert pod(phase="Running", podIPs=both) == PodInfo(
        "default",
        {"app": "web"},
        ("10.244.0.5", "fd00:10:244::5"),
        ((PortName("tcp", "http"), 80),),
    )
    assert pod(podIP="10.244.0.5").addresses == ("10.244.0.5",)
    assert pod() is None
    assert pod(podIP="192.168.1.1") is None
    assert pod(podIP="nonsense") is None
    assert pod(phase="Succeeded", podIP="10.244.0.5") is None
