"""The packet filter of the machine namespace, as text."""

import re
from ipaddress import ip_address, ip_network

from corral.node.network.namespace_nft_rules import HOST_RANGES, rules

BOTH = [ip_address("10.244.0.1"), ip_address("fd00:10:244::1")]


def test_a_table_replaces_any_earlier_one():
    assert rules(BOTH).startswith(
        "table inet corral\ndelete table inet corral\ntable inet corral {"
    )


def test_machines_reach_dns_and_the_api_at_the_gateways_only():
    lines = rules(BOTH).splitlines()
    accepted = [line.strip() for line in lines if " dport " in line and "ct state" not in line]
    assert accepted == [
        "ip daddr 10.244.0.1 udp dport 53 accept",
        "ip daddr 10.244.0.1 tcp dport 53 accept",
        "ip daddr 10.244.0.1 tcp dport 6443 accept",
        "ip6 daddr fd00:10:244::1 udp dport 53 accept",
        "ip6 daddr fd00:10:244::1 tcp dport 53 accept",
        "ip6 daddr fd00:10:244::1 tcp dport 6443 accept",
    ]
    assert "hook input priority filter; policy drop;" in rules(BOTH)


def test_without_ipv6_there_are_no_ipv6_rules():
    assert "ip6" not in rules(BOTH[:1])


def test_the_address_of_the_host_for_machines_is_their_gateway():
    assert "ip saddr 169.254.76.0/22 " in rules(BOTH)
    assert "snat ip to 10.244.0.1" in rules(BOTH)
    assert [str(each) for each in HOST_RANGES] == ["169.254.76.0/24", "fd00:169:254:4c00::/64"]


def barred(text):
    """By chain: the addresses that are refused on the way out."""
    chains = {}
    for line in text.splitlines():
        if line.startswith("  chain "):
            chain = line.split()[1]
        elif 'oifname "outward"' in line and " daddr {" in line:
            chains.setdefault(chain, []).extend(re.search(r"{ (.*) }", line)[1].split(", "))
    return chains


def test_cloud_metadata_is_blocked_for_guests_and_probes():
    found = barred(rules(BOTH))
    assert found["forward"] == found["output"]
    metadata = ["169.254.0.0/16", "168.63.129.16/32", "100.100.100.200/32", "192.0.0.192/32"]
    assert {*metadata, "fd00:ec2::254/128", "64:ff9b::a9fe:0/112"} <= set(found["forward"])


def test_cloud_metadata_can_be_allowed_but_no_address_of_the_host():
    everything = [ip_network("0.0.0.0/0"), ip_network("::/0")]
    assert barred(rules(BOTH, everything))["forward"] == list(
        map(str, (ip_network("::/96"), ip_network("::ffff:0:0/96")))
    )
    assert barred(rules(BOTH[:1], everything)) == {}
    one = [ip_network("168.63.129.16/32")]
    assert "168.63.129.16/32" not in barred(rules(BOTH, one))["forward"]
    assert "100.100.100.200/32" in barred(rules(BOTH, one))["forward"]


def test_connections_to_the_host_are_blocked():
    output = rules(BOTH).partition("chain output {")[2]
    assert 'oifname { "inbound", "host" } ct state new reject' in output
