"""What a Service needs of the packet filter."""

import re
from ipaddress import ip_address, ip_network

import pytest
from lightkube.models.core_v1 import (
    ClientIPConfig,
    LoadBalancerIngress,
    LoadBalancerStatus,
    Service,
    ServicePort,
    ServiceSpec,
    ServiceStatus,
    SessionAffinityConfig,
)
from lightkube.models.discovery_v1 import (
    Endpoint,
    EndpointConditions,
    EndpointPort,
    EndpointSlice,
)
from lightkube.models.meta_v1 import ObjectMeta

from corral.node.proxy.backends import Backend
from corral.node.proxy.service_rules import (
    NO_RULES,
    Claim,
    ClusterAddresses,
    ElementKey,
    Frontend,
    address,
    rules_for,
)

WEB = ElementKey("services4", "10.96.0.9 . tcp . 80")


def service(name="web", **spec) -> Service:
    whole = {
        "clusterIP": "10.96.0.9",
        "ports": [ServicePort(port=80, protocol="TCP", targetPort=8080)],
    }
    return Service(
        metadata=ObjectMeta(name=name, namespace="default"), spec=ServiceSpec(**(whole | spec))
    )


def endpoint(ip, *, ready=True, serving=None, terminating=None, node="here") -> Endpoint:
    conditions = EndpointConditions(ready=ready, serving=serving, terminating=terminating)
    return Endpoint(addresses=[ip], conditions=conditions, nodeName=node)


def slice_of(*endpoints, version=4, name="", protocol="TCP", port=8080) -> EndpointSlice:
    return EndpointSlice(
        addressType=f"IPv{version}",
        endpoints=list(endpoints),
        ports=[EndpointPort(name=name, protocol=protocol, port=port)],
    )


def made(one=None, *slices):
    return rules_for(one or service(), slices, {"here"})


def chain(found, slot=WEB) -> tuple[str, ...]:
    """The rules to which a place leads."""
    value = found.elements[slot].value
    assert value.startswith("goto ")
    return found.chains[value.removeprefix("goto ")]


def test_one_endpoint_gets_everything():
    found = made(None, slice_of(endpoint("10.244.0.2")))
    assert chain(found) == ("meta l4proto tcp dnat ip to 10.244.0.2:8080",)
    assert ElementKey("hairpin4", "10.244.0.2 . 10.244.0.2") in found.elements


def test_several_endpoints_are_chosen_at_random():
    found = made(None, slice_of(endpoint("10.244.0.3"), endpoint("10.244.0.2")))
    draw, otherwise = chain(found)
    assert draw == (
        "meta l4proto tcp dnat ip to numgen random mod 2 map {\n"
        "\t\t0 : 10.244.0.2 . 8080,\n"
        "\t\t1 : 10.244.0.3 . 8080\n"
        "\t}"
    )
    assert otherwise == "meta l4proto tcp dnat ip to 10.244.0.3:8080", "the draw may find no map"


def test_ipv6_has_its_own_maps():
    one = service(clusterIP="fd00::9", clusterIPs=["fd00::9"])
    found = made(one, slice_of(endpoint("fd01::2"), version=6))
    slot = ElementKey("services6", "fd00::9 . tcp . 80")
    assert chain(found, slot) == ("meta l4proto tcp dnat ip6 to [fd01::2]:8080",)


def test_an_endpoint_in_two_slices_counts_once():
    found = made(None, slice_of(endpoint("10.244.0.2")), slice_of(endpoint("10.244.0.2")))
    assert chain(found) == ("meta l4proto tcp dnat ip to 10.244.0.2:8080",)


def test_a_service_without_endpoints_rejects():
    assert made().elements == {WEB: Claim(0, "goto refuse")}
    assert made(None, slice_of(endpoint("10.244.0.2", ready=False))).elements == {
        WEB: Claim(0, "goto refuse")
    }


def test_terminating_endpoints_serve_if_none_is_ready():
    going = endpoint("10.244.0.2", ready=False, serving=True, terminating=True)
    assert "10.244.0.2" in chain(made(None, slice_of(going)))[0]
    ready = endpoint("10.244.0.3")
    assert chain(made(None, slice_of(going, ready))) == (
        "meta l4proto tcp dnat ip to 10.244.0.3:8080",
    )
    ill = endpoint("10.244.0.4", ready=False, serving=False, terminating=True)
    assert "10.244.0.4" not in chain(made(None, slice_of(going, ill)))[0]


def test_missing_conditions_of_an_endpoint_count_as_ready():
    member = Endpoint(addresses=["10.244.0.2"])
    assert "10.244.0.2" in chain(made(None, slice_of(member)))[0]


def test_session_affinity_has_a_set_of_clients_per_endpoint():
    config = SessionAffinityConfig(clientIP=ClientIPConfig(timeoutSeconds=60))
    one = service(sessionAffinity="ClientIP", sessionAffinityConfig=config)
    found = made(one, slice_of(endpoint("10.244.0.2"), endpoint("10.244.0.3")))
    known, also, fresh, otherwise = chain(found)
    assert re.fullmatch(r"ip saddr @clients-\w+-60 goto endpoint-\w+", known)
    assert re.fullmatch(r"ip saddr @clients-\w+-60 goto endpoint-\w+", also)
    assert fresh.startswith("numgen random mod 2 vmap")
    assert otherwise == also.partition(" ")[2].partition(" ")[2].partition(" ")[2]
    assert len(found.sets) == 2
    assert set(found.sets.values()) == {"type ipv4_addr; flags dynamic,timeout; timeout 60s;"}
    chains = [body for name, body in found.chains.items() if name.startswith("endpoint-")]
    assert all(body[0].startswith("update @clients-") for body in chains)
    assert all("dnat ip to 10.244.0." in body[1] for body in chains)


def test_internal_traffic_policy_local_uses_endpoints_of_this_host():
    slices = slice_of(endpoint("10.244.0.2"), endpoint("10.9.0.2", node="elsewhere"))
    found = made(service(internalTrafficPolicy="Local"), slices)
    assert chain(found) == ("meta l4proto tcp dnat ip to 10.244.0.2:8080",)
    away = slice_of(endpoint("10.9.0.2", node="elsewhere"))
    found = made(service(internalTrafficPolicy="Local"), away)
    assert found.elements[WEB].value == "drop"
    found = made(service(internalTrafficPolicy="Local"))
    assert found.elements[WEB].value == "goto refuse"


def test_external_traffic_policy_applies_to_external_traffic():
    ports = [ServicePort(port=80, protocol="TCP", targetPort=8080, nodePort=30080)]
    one = service(type="NodePort", ports=ports, externalTrafficPolicy="Local")
    slices = slice_of(endpoint("10.244.0.2"), endpoint("10.9.0.2", node="elsewhere"))
    found = made(one, slices)
    assert "mod 2" in chain(found)[0]
    outer = ElementKey("nodeports4", "tcp . 30080")
    assert chain(found, outer) == ("meta l4proto tcp dnat ip to 10.244.0.2:8080",)


def test_external_and_load_balancer_ips_are_served():
    one = service(
        type="LoadBalancer",
        externalIPs=["198.51.100.7"],
        ports=[ServicePort(port=80, protocol="TCP", nodePort=30080)],
    )
    ingress = [LoadBalancerIngress(ip="203.0.113.5"), LoadBalancerIngress(ip="127.0.0.1")]
    one.status = ServiceStatus(loadBalancer=LoadBalancerStatus(ingress=ingress))
    keys = {slot.key for slot in made(one).elements}
    assert keys == {
        "10.96.0.9 . tcp . 80",
        "198.51.100.7 . tcp . 80",
        "203.0.113.5 . tcp . 80",
        "tcp . 30080",
    }


def test_external_ips_in_ranges_of_the_cluster_are_ignored():
    """Whatever is stored from a time when nobody looked."""
    around = ClusterAddresses(
        services=[ip_network("10.96.0.0/12")],
        pods=[ip_network("10.244.0.0/16")],
        nodes=[ip_address("192.0.2.2")],
    )
    stolen = ["10.96.0.10", "10.244.0.2", "192.0.2.2", "169.254.77.1", "127.0.0.1"]
    one = service(type="LoadBalancer", externalIPs=[*stolen, "198.51.100.7"])
    ingress = [LoadBalancerIngress(ip=each) for each in ("10.96.0.1", "10.244.0.9", "192.0.2.2")]
    one.status = ServiceStatus(loadBalancer=LoadBalancerStatus(ingress=ingress))
    keys = {slot.key for slot in rules_for(one, (), {"here"}, around).elements}
    own = {"10.96.0.9 . tcp . 80", "169.254.78.100 . tcp . 80"}
    assert keys == own | {"198.51.100.7 . tcp . 80", "192.0.2.2 . tcp . 80"}


def test_a_load_balancer_without_node_ports_has_its_own_port_only():
    one = service(type="LoadBalancer", allocateLoadBalancerNodePorts=False)
    keys = {slot.key for slot in made(one).elements}
    assert keys == {"10.96.0.9 . tcp . 80", "169.254.78.100 . tcp . 80"}
    other = service(type="LoadBalancer", loadBalancerClass="example.com/other")
    assert set(made(other).elements) == {WEB}


@pytest.mark.parametrize("protocol", ["UDP", "TCP"])
def test_endpoints_are_reported_by_address(protocol):
    one = service(ports=[ServicePort(port=53, protocol=protocol, targetPort=5353)])
    found = made(one, slice_of(endpoint("10.244.0.2"), protocol=protocol, port=5353))
    frontend = Frontend(protocol.lower(), address("10.96.0.9"), 53)
    assert found.backends == {frontend: frozenset({Backend("10.244.0.2", 5353)})}


def test_ports_are_matched_by_name_and_protocol():
    ports = [ServicePort(name="a", port=80, protocol="TCP"),
             ServicePort(name="b", port=81, protocol="TCP")]  # fmt: skip
    found = made(service(ports=ports), slice_of(endpoint("10.244.0.2"), name="b"))
    assert found.elements[WEB].value == "goto refuse"
    assert chain(found, ElementKey("services4", "10.96.0.9 . tcp . 81"))


@pytest.mark.parametrize(
    "spec",
    [{"clusterIP": "None"}, {"clusterIP": ""}, {"clusterIP": None}, {"type": "ExternalName"}],
)
def test_services_without_an_address_have_no_rules(spec):
    assert made(service(**spec), slice_of(endpoint("10.244.0.2"))) == NO_RULES


@pytest.mark.parametrize(
    "ip",
    ["127.0.0.1", "169.254.76.1", "224.0.0.1", "0.0.0.0", "10.244.0.2 }", "fd00::1", "", "x"],
)
def test_endpoints_at_host_or_invalid_addresses_are_ignored(ip):
    assert made(None, slice_of(endpoint(ip))).elements == {WEB: Claim(0, "goto refuse")}


@pytest.mark.parametrize("ip", ["::1", "::", "::ffff:127.0.0.1", "fe80::1", "ff02::1"])
def test_endpoints_at_ipv4_mapped_addresses_are_ignored(ip):
    one = service(clusterIP="fd00::9", clusterIPs=["fd00::9"])
    slot = ElementKey("services6", "fd00::9 . tcp . 80")
    assert made(one, slice_of(endpoint(ip), version=6)).elements == {slot: Claim(0, "goto refuse")}


HOSTILE = '"; flush ruleset; #\n}'


def test_names_cannot_inject_rules():
    one = service(
        name=HOSTILE,
        clusterIP="10.96.0.9",
        clusterIPs=["10.96.0.9", f"fd00::9%{HOSTILE}"],
        externalIPs=[HOSTILE, f"fd00::1%{HOSTILE}"],
        ports=[ServicePort(name=HOSTILE, port=80, protocol="TCP", nodePort=30000),
               ServicePort(port=81, protocol=HOSTILE), ServicePort(port=1 << 20)],
        type="NodePort", sessionAffinity="ClientIP",
    )  # fmt: skip
    found = made(
        one,
        slice_of(endpoint("10.244.0.2", node=HOSTILE), endpoint(HOSTILE), name=HOSTILE),
        slice_of(endpoint(f"fd01::1%{HOSTILE}"), name=HOSTILE, version=6),
    )
    whole = [*found.chains, *found.sets, *found.sets.values()]
    whole += [rule for body in found.chains.values() for rule in body]
    whole += [text for slot, claim in found.elements.items() for text in (*slot, claim.value)]
    assert len(whole) > 10
    assert not any("flush" in text or '"' in text or "#" in text for text in whole)
