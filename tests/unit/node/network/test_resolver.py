"""Name servers and search lists: what a kubelet writes for a pod, and KubeVirt adds for a guest."""

import msgspec

from corral.api.kinds.vmi.vmi import Spec
from corral.node.network.resolver import Resolver, parse, read_host_resolver, resolve_dns

HOST = Resolver(("192.0.2.1", "127.0.0.53"), ("example.com",), ("edns0",))
CLUSTER = ("shop.svc.cluster.local", "svc.cluster.local", "cluster.local")


def resolved(host=HOST, **spec):
    made = msgspec.convert({"domain": {"devices": {}}, **spec}, Spec)
    cluster = ["10.96.0.10"]
    return resolve_dns(made, "shop", cluster=cluster, domain="cluster.local", host=host)


def test_resolv_conf_is_parsed_as_by_resolvers():
    text = """
        # a comment
        nameserver 192.0.2.1
        nameserver fe80::1%eth0  ; another
        domain example.org
        search a.example b.example
        options ndots:2 edns0
        options rotate
        nameserver
    """
    assert parse(text) == Resolver(
        ("192.0.2.1", "fe80::1%eth0"), ("a.example", "b.example"), ("ndots:2", "edns0", "rotate")
    )


def test_a_host_without_resolv_conf_has_no_servers(tmp_path):
    assert read_host_resolver(tmp_path / "none") == Resolver()


def test_dns_policy_cluster_first():
    assert resolved() == Resolver(("10.96.0.10",), (*CLUSTER, "example.com"), ("ndots:5",))
    assert (
        resolved(dnsPolicy="ClusterFirst")
        == resolved(dnsPolicy="ClusterFirstWithHostNet")
        == resolved()
    )


def test_dns_policy_default_without_loopback_servers():
    assert resolved(dnsPolicy="Default") == Resolver(
        ("192.0.2.1", "10.96.0.10"), ("example.com",), ("edns0",)
    )


def test_dns_config_replaces_or_extends_the_policy():
    config = {
        "nameservers": ["192.0.2.9", "nonsense", "192.0.2.9"],
        "searches": ["Own.example.", "svc.cluster.local"],
        "options": [{"name": "ndots", "value": "1"}, {"name": "rotate"}],
    }
    assert resolved(dnsPolicy="None", dnsConfig=config) == Resolver(
        ("192.0.2.9",), ("own.example", "svc.cluster.local"), ("ndots:1", "rotate")
    )
    assert resolved(dnsConfig=config) == Resolver(
        ("10.96.0.10", "192.0.2.9"), (*CLUSTER, "example.com", "own.example"), ("ndots:1", "rotate")
    )


def test_the_subdomain_is_the_first_search_domain():
    assert resolved(subdomain="web").searches[:2] == ("web.shop.svc.cluster.local", CLUSTER[0])
    assert resolved(subdomain="web", dnsPolicy="None").searches == ()


def test_lists_are_limited_to_those_of_resolvers():
    servers = tuple(f"192.0.2.{n}" for n in range(9))
    many = tuple(f"{n}.example" for n in range(99))
    found = resolved(Resolver((*servers, "2001:db8::1"), many), dnsPolicy="Default")
    assert found.servers == (*servers[:3], "2001:db8::1")
    assert found.searches == many[:32]
    long = tuple(f"{n}{'x' * 99}.example" for n in range(30))
    assert (
        sum(len(one) + 1 for one in resolved(Resolver((), long), dnsPolicy="Default").searches)
        <= 2049
    )
