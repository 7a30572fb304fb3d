"""The packet filter of the machine namespace, as text."""

from ipaddress import ip_address

from corral.node.network.rules import HOST_RANGES, rules

BOTH = [ip_address("10.244.0.1"), ip_address("fd00:10:244::1")]


def test_a_table_is_put_in_place_whatever_stood_there():
    assert rules(BOTH).startswith(
        "table inet corral\ndelete table inet corral\ntable inet corral {"
    )


def test_machines_reach_dns_and_the_api_at_the_gateways_alone():
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


def test_without_ipv6_nothing_is_said_of_it():
    assert "ip6" not in rules(BOTH[:1])


def test_the_host_is_known_to_machines_by_their_gateway():
    assert "ip saddr 169.254.76.0/22 " in rules(BOTH)
    assert "snat ip to 10.244.0.1" in rules(BOTH)
    assert [str(each) for each in HOST_RANGES] == ["169.254.76.0/24", "fd00:169:254:4c00::/64"]
