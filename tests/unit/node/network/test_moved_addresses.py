"""Where addresses are that have moved with their machine, as pods and hosts show it."""

from ipaddress import ip_address, ip_network

import msgspec
from lightkube.models.core_v1 import Pod
from tests.unit.node.network.test_peers import OTHER, OWN, node

from corral.node.network.moved_addresses import MovedAddresses, by_host
from corral.reconcile.objects import key_of

ADDRESS = ip_address("10.244.0.7")
PODS = [ip_network("10.244.0.0/16")]
NODES = [
    node("a", OWN, "10.244.0.0/24"),
    node("b", OTHER, "10.244.1.0/24"),
    node("c", OTHER, "10.244.2.0/24"),
]


def pod(on, *, age=0, ips=(ADDRESS,), phase="Running"):
    metadata = {"name": f"of-{on}-{age}", "creationTimestamp": f"2026-01-01T00:00:{age:02}Z"}
    status = {"phase": phase, "podIPs": [{"ip": str(each)} for each in ips]}
    document = {"metadata": metadata, "spec": {"nodeName": on, "containers": []}, "status": status}
    return msgspec.convert(document, Pod)


def test_the_latest_pod_has_the_address():
    pods = [pod("c", age=5), pod("b", age=1), pod("a", age=9, ips=())]
    assert MovedAddresses().nodes(pods) == {ADDRESS: "c"}


def test_pods_that_have_ended_have_none():
    assert MovedAddresses().nodes([pod("b", phase="Succeeded")]) == {}


def test_an_address_is_led_until_its_new_pod_shows_it():
    moved, silent, shown = MovedAddresses(), pod("c", age=2, ips=()), pod("c", age=2)
    moved.lead([ADDRESS], "c", key_of(silent))
    before = pod("b", age=1)
    assert moved.led([before, silent]) == {ADDRESS: "c"}
    assert moved.nodes([before, silent]) == {ADDRESS: "c"}
    assert moved.led([before, shown]) == {}
    assert moved.nodes([before, shown, pod("a", age=3)]) == {ADDRESS: "a"}, "a later one"


def test_an_address_is_not_led_to_a_pod_that_has_ended():
    moved, ended = MovedAddresses(), pod("c", age=2, ips=(), phase="Failed")
    moved.lead([ADDRESS], "c", key_of(ended))
    assert moved.nodes([pod("b", age=1), ended]) == {ADDRESS: "b"}
    assert moved.nodes([pod("b", age=1)]) == {ADDRESS: "b"}


def test_an_address_that_is_not_led_any_more_is_where_the_pods_show_it():
    moved, silent = MovedAddresses(), pod("c", ips=())
    moved.lead([ADDRESS], "c", key_of(silent))
    assert moved.forget([ADDRESS])
    assert not moved.forget([ADDRESS])
    assert moved.nodes([silent]) == {}


def test_addresses_outside_the_ranges_of_their_host_are_listed_by_host():
    def found(address, on):
        return by_host({ip_address(address): on}, NODES, PODS)

    assert found("10.244.0.7", "b") == {OTHER: (ip_network("10.244.0.7"),)}
    assert found("10.244.1.7", "a") == {OWN: (ip_network("10.244.1.7"),)}
    assert found("10.244.1.7", "c") == {}, "both nodes are on one host"
    assert found("10.244.0.7", "a") == {}
    assert found("10.244.0.7", "gone") == {}
    assert found("192.0.2.2", "b") == {}, "that of a host"
