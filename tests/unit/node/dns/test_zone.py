"""The names of a cluster: what the DNS specification asks for, example by example."""

from ipaddress import IPv6Address

import pytest
from lightkube.models.core_v1 import Service, ServicePort, ServiceSpec
from lightkube.models.discovery_v1 import (
    Endpoint,
    EndpointConditions,
    EndpointPort,
    EndpointSlice,
)
from lightkube.models.meta_v1 import ObjectMeta

from corral.api.object import Key
from corral.node.dns.records import Code, Srv, Type, parse_name
from corral.node.dns.zone import Zone

WEB = Key("default", "web")
HTTP = ServicePort(port=80, name="http", protocol="TCP")


def service(**spec):
    return Service(spec=ServiceSpec(**spec))


def endpoints(*members, of="web", ports=(), address_type="IPv4"):
    return EndpointSlice(
        metadata=ObjectMeta(labels={"kubernetes.io/service-name": of}),
        addressType=address_type,
        endpoints=list(members),
        ports=[EndpointPort(name=name, port=port, protocol="TCP") for name, port in ports],
    )


def member(address, *, hostname=None, ready=True):
    return Endpoint(
        addresses=[address], hostname=hostname, conditions=EndpointConditions(ready=ready)
    )


@pytest.fixture
def zone():
    made = Zone(
        "cluster.local", servers=["10.96.0.10"], ranges=["10.244.0.0/16", "10.96.0.0/12"], serial=7
    )
    made.put_namespace("default")
    return made


def answer_of(zone, name, kind):
    return zone.answer(parse_name(name), kind)


def data(answer):
    assert answer.code == Code.NOERROR
    return [record.data for record in answer.records]


def is_no_data(answer):
    return (answer.code, list(answer.records)) == (Code.NOERROR, []) and (
        answer.authority[0].type is Type.SOA
    )


def is_no_name(answer):
    return answer.code == Code.NXDOMAIN and answer.authority[0].type is Type.SOA


def test_a_service_has_its_cluster_addresses(zone):
    zone.put_service(WEB, service(clusterIP="10.96.3.4", clusterIPs=["10.96.3.4", "fd00::5"]))
    answer = answer_of(zone, "web.default.svc.cluster.local", Type.A)
    assert data(answer) == ["10.96.3.4"]
    assert answer.records[0].ttl_seconds == 5
    assert data(answer_of(zone, "web.default.svc.cluster.local.", Type.AAAA)) == ["fd00::5"]


def test_names_are_case_insensitive_and_returned_as_queried(zone):
    zone.put_service(WEB, service(clusterIP="10.96.3.4"))
    answer = answer_of(zone, "WEB.Default.SVC.cluster.LOCAL", Type.A)
    assert answer.records[0].name == parse_name("WEB.Default.SVC.cluster.LOCAL")


def test_nodata_and_nxdomain_are_distinguished(zone):
    zone.put_service(WEB, service(clusterIP="10.96.3.4"))
    assert is_no_data(answer_of(zone, "web.default.svc.cluster.local", Type.AAAA))
    assert is_no_data(answer_of(zone, "web.default.svc.cluster.local", 15))
    assert is_no_name(answer_of(zone, "other.default.svc.cluster.local", Type.A))
    assert is_no_name(answer_of(zone, "a.b.c.web.default.svc.cluster.local", Type.A))


@pytest.mark.parametrize("name", ["svc", "pod", "dns", "default.svc", "default.pod"])
def test_empty_non_terminals_exist(zone, name):
    assert is_no_data(answer_of(zone, f"{name}.cluster.local", Type.A))


@pytest.mark.parametrize("name", ["gone.svc", "gone.pod", "other", "10-0-0-1.gone.pod", "x.pod"])
def test_names_of_missing_namespaces_do_not_exist(zone, name):
    assert is_no_name(answer_of(zone, f"{name}.cluster.local", Type.A))


def test_names_outside_of_the_zone_are_not_answered(zone):
    assert answer_of(zone, "example.com", Type.A) is None
    assert answer_of(zone, "web.default.svc", Type.A) is None
    assert answer_of(zone, "xcluster.local", Type.A) is None
    assert answer_of(zone, "", Type.A) is None


def test_the_dns_version_record(zone):
    answer = answer_of(zone, "dns-version.cluster.local", Type.TXT)
    assert (data(answer), answer.records[0].ttl_seconds) == (["1.1.0"], 28800)


def test_soa_and_ns_records(zone):
    assert data(answer_of(zone, "cluster.local", Type.NS)) == [parse_name("ns.dns.cluster.local")]
    assert data(answer_of(zone, "ns.dns.cluster.local", Type.A)) == ["10.96.0.10"]
    assert data(answer_of(zone, "cluster.local", Type.SOA))[0].serial == 7
    assert is_no_data(answer_of(zone, "cluster.local", Type.A))


def test_a_headless_service_has_all_ready_addresses(zone):
    zone.put_service(WEB, service(clusterIP="None"))
    zone.put_slice(
        Key("default", "web-1"), endpoints(member("10.244.0.5"), member("10.244.0.6", ready=False))
    )
    zone.put_slice(Key("default", "web-2"), endpoints(member("10.244.0.7", ready=None)))
    answer = answer_of(zone, "web.default.svc.cluster.local", Type.A)
    assert sorted(data(answer)) == ["10.244.0.5", "10.244.0.7"]
    assert is_no_data(answer_of(zone, "web.default.svc.cluster.local", Type.AAAA))


def test_a_headless_service_without_ready_members_has_no_name(zone):
    zone.put_service(WEB, service(clusterIP="None"))
    zone.put_slice(Key("default", "web-1"), endpoints(member("10.244.0.5", ready=False)))
    assert is_no_name(answer_of(zone, "web.default.svc.cluster.local", Type.A))


def test_unready_members_count_with_publish_not_ready_addresses(zone):
    zone.put_service(WEB, service(clusterIP="None", publishNotReadyAddresses=True))
    zone.put_slice(Key("default", "web-1"), endpoints(member("10.244.0.5", ready=False)))
    assert data(answer_of(zone, "web.default.svc.cluster.local", Type.A)) == ["10.244.0.5"]


def test_members_have_their_own_names(zone):
    zone.put_service(WEB, service(clusterIP="None"))
    zone.put_slice(
        Key("default", "web-1"),
        endpoints(
            member("10.244.0.5", hostname="vm1"),
            member("10.244.0.6", hostname="vm1"),
            member("10.244.0.7"),
        ),
    )
    assert data(answer_of(zone, "vm1.web.default.svc.cluster.local", Type.A)) == [
        "10.244.0.5",
        "10.244.0.6",
    ]
    assert data(answer_of(zone, "10-244-0-7.web.default.svc.cluster.local", Type.A)) == [
        "10.244.0.7"
    ]
    assert is_no_name(answer_of(zone, "vm2.web.default.svc.cluster.local", Type.A))


def test_a_too_long_hostname_is_ignored(zone):
    zone.put_service(WEB, service(clusterIP="None"))
    members = [member("10.244.0.5", hostname="x" * 64), member("10.244.0.6", hostname="VM6")]
    zone.put_slice(Key("default", "web-1"), endpoints(*members))
    assert data(answer_of(zone, "10-244-0-5.web.default.svc.cluster.local", Type.A)) == [
        "10.244.0.5"
    ]
    assert data(answer_of(zone, "vm6.web.default.svc.cluster.local", Type.A)) == ["10.244.0.6"]


def test_named_ports_have_srv_records(zone):
    zone.put_service(WEB, service(clusterIP="10.96.3.4", ports=[HTTP, ServicePort(port=9)]))
    whole = parse_name("web.default.svc.cluster.local")
    answer = answer_of(zone, "_http._tcp.web.default.svc.cluster.local", Type.SRV)
    assert data(answer) == [Srv(80, whole)]
    assert [(one.name, one.data) for one in answer.additional] == [(whole, "10.96.3.4")]
    assert data(answer_of(zone, "web.default.svc.cluster.local", Type.SRV)) == [
        Srv(80, whole),
        Srv(9, whole),
    ]
    assert is_no_data(answer_of(zone, "_http._tcp.web.default.svc.cluster.local", Type.A))
    assert is_no_data(answer_of(zone, "_tcp.web.default.svc.cluster.local", Type.SRV))
    assert is_no_name(answer_of(zone, "_http._udp.web.default.svc.cluster.local", Type.SRV))
    assert is_no_name(answer_of(zone, "_._tcp.web.default.svc.cluster.local", Type.SRV))


def test_a_headless_service_has_srv_records_per_member_and_port(zone):
    zone.put_service(WEB, service(clusterIP="None", ports=[HTTP]))
    zone.put_slice(
        Key("default", "web-1"),
        endpoints(
            member("10.244.0.5", hostname="vm1"),
            member("10.244.0.6"),
            ports=[("http", 8080), ("other", 1)],
        ),
    )
    answer = answer_of(zone, "_http._tcp.web.default.svc.cluster.local", Type.SRV)
    whole = parse_name("web.default.svc.cluster.local")
    assert data(answer) == [Srv(8080, ("vm1", *whole)), Srv(8080, ("10-244-0-6", *whole))]
    assert [one.data for one in answer.additional] == ["10.244.0.5", "10.244.0.6"]


def test_an_external_name_is_a_cname(zone):
    zone.put_service(WEB, service(type="ExternalName", externalName="www.example.com"))
    answer = answer_of(zone, "web.default.svc.cluster.local", Type.A)
    assert data(answer) == [parse_name("www.example.com")]
    assert answer.records[0].type is Type.CNAME
    assert is_no_name(answer_of(zone, "_http._tcp.web.default.svc.cluster.local", Type.SRV))


def test_a_too_long_external_name_is_ignored(zone):
    zone.put_service(WEB, service(type="ExternalName", externalName=f"{'a' * 64}.com"))
    assert is_no_data(answer_of(zone, "web.default.svc.cluster.local", Type.A))


def test_cluster_ips_have_ptr_records(zone):
    zone.put_service(WEB, service(clusterIP="10.96.3.4", clusterIPs=["10.96.3.4", "fd00::5"]))
    whole = parse_name("web.default.svc.cluster.local")
    assert data(answer_of(zone, "4.3.96.10.in-addr.arpa", Type.PTR)) == [whole]
    nibbles = reversed(IPv6Address("fd00::5").exploded.replace(":", ""))
    assert data(answer_of(zone, f"{'.'.join(nibbles)}.ip6.arpa", Type.PTR)) == [whole]
    assert is_no_data(answer_of(zone, "4.3.96.10.in-addr.arpa", Type.A))


def test_members_with_a_hostname_have_ptr_records(zone):
    zone.put_service(WEB, service(clusterIP="None"))
    zone.put_slice(
        Key("default", "web-1"), endpoints(member("10.244.0.5", hostname="vm1"), member("10.1.1.1"))
    )
    assert data(answer_of(zone, "5.0.244.10.in-addr.arpa", Type.PTR)) == [
        parse_name("vm1.web.default.svc.cluster.local")
    ]


def test_unknown_addresses_of_the_cluster_are_not_forwarded(zone):
    assert is_no_name(answer_of(zone, "9.9.244.10.in-addr.arpa", Type.PTR))
    assert answer_of(zone, "8.8.8.8.in-addr.arpa", Type.PTR) is None
    assert answer_of(zone, "244.10.in-addr.arpa", Type.PTR) is None
    assert answer_of(zone, "x.9.244.10.in-addr.arpa", Type.PTR) is None


def test_pods_have_names_by_address(zone):
    assert data(answer_of(zone, "10-244-0-5.default.pod.cluster.local", Type.A)) == ["10.244.0.5"]
    assert data(answer_of(zone, "fd00--5.default.pod.cluster.local", Type.AAAA)) == ["fd00::5"]
    assert is_no_name(answer_of(zone, "10-244-0-256.default.pod.cluster.local", Type.A))


def test_deleted_services_leave_no_names(zone):
    empty = {name: len(value) for name, value in vars(zone).items() if isinstance(value, dict)}
    slices = [Key("default", f"web-{n}") for n in range(3)]
    zone.put_service(WEB, service(clusterIPs=["10.96.3.4"]))
    zone.put_service(Key("default", "head"), service(clusterIP="None"))
    for key in slices:
        zone.put_slice(key, endpoints(member("10.244.0.5", hostname="vm1"), of="head"))
    zone.put_slice(slices[0], endpoints(member("10.244.0.6", hostname="vm2"), of="head"))
    assert len(data(answer_of(zone, "head.default.svc.cluster.local", Type.A))) == 2
    for key in slices:
        zone.drop_slice(key)
        zone.drop_slice(key)
    assert is_no_name(answer_of(zone, "head.default.svc.cluster.local", Type.A))
    zone.drop_service(WEB)
    zone.drop_service(Key("default", "head"))
    assert is_no_name(answer_of(zone, "4.3.96.10.in-addr.arpa", Type.PTR))
    zone.drop_namespace("default")
    assert is_no_name(answer_of(zone, "default.svc.cluster.local", Type.A))
    after = {name: len(value) for name, value in vars(zone).items() if isinstance(value, dict)}
    assert after == empty
