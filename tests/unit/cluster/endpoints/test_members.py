"""The pods that answer for a Service, and their endpoints."""

from datetime import UTC, datetime, timedelta

import pytest
from lightkube.models.core_v1 import (
    Container,
    ContainerPort,
    EndpointAddress,
    Endpoints,
    HostIP,
    Pod,
    PodCondition,
    PodIP,
    PodSpec,
    PodStatus,
    Service,
    ServicePort,
    ServiceSpec,
)
from lightkube.models.meta_v1 import ObjectMeta

from corral.cluster.endpoints import endpoints_object, mirror
from corral.cluster.endpoints.members import Port, endpoint, members, ports
from corral.cluster.endpoints.slices import frame, groups
from corral.cluster.endpoints.trigger_time import Triggers

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def pod(name="one", *, number=2, ready=True, going=False, phase="Running", **spec) -> Pod:
    offered = [ContainerPort(name="http", containerPort=8080)]
    ip = f"10.244.{number // 250}.{number % 250}"
    listed = [PodIP(ip=ip), PodIP(ip=f"fd00::{number:x}")]
    condition = PodCondition(
        type="Ready", status="True" if ready else "False", lastTransitionTime=NOW
    )
    return Pod(
        metadata=ObjectMeta(
            name=name, namespace="default", uid=f"uid-{name}", labels={"app": "web"},
            deletionTimestamp=NOW if going else None,
        ),
        spec=PodSpec(containers=[Container(name="c", ports=offered)], nodeName="node0", **spec),
        status=PodStatus(phase=phase, podIP=ip, podIPs=listed, conditions=[condition]),
    )  # fmt: skip


def service(**spec) -> Service:
    whole = {
        "selector": {"app": "web"},
        "clusterIP": "10.96.0.9",
        "ports": [ServicePort(port=80, protocol="TCP", targetPort=8080)],
    }
    return Service(
        metadata=ObjectMeta(name="web", namespace="default", uid="u1", creationTimestamp=NOW),
        spec=ServiceSpec(**(whole | spec)),
    )


def test_the_address_of_the_host_is_no_pod_address():
    behind, beside = pod("behind"), pod("beside", hostNetwork=True)
    for one in (behind, beside):
        one.status.hostIP = one.status.podIP
        one.status.hostIPs = [HostIP(ip=each.ip) for each in one.status.podIPs]
    assert members(service(), [behind, beside]) == [beside]


def test_members_match_the_selector_have_an_address_and_are_not_finished():
    other, addressless = pod("other"), pod("addressless")
    other.metadata.labels = {"app": "other"}
    addressless.status = PodStatus(phase="Running")
    found = [pod("b"), pod("a"), pod("done", phase="Succeeded"), pod("dead", phase="Failed"),
             pod("going", going=True), other, addressless]  # fmt: skip
    assert [each.metadata.name for each in members(service(), found)] == ["a", "b", "going"]


@pytest.mark.parametrize(
    ("ready", "going", "always", "expected"),
    [
        (True, False, False, (True, True, False)),
        (False, False, False, (False, False, False)),
        (True, True, False, (False, True, True)),
        (False, True, False, (False, False, True)),
        (False, False, True, (True, False, False)),
        (True, True, True, (True, True, True)),
    ],
)
def test_conditions_of_endpoints(ready, going, always, expected):
    one = service(publishNotReadyAddresses=always)
    conditions = endpoint(one, pod(ready=ready, going=going), "IPv4").conditions
    assert (conditions.ready, conditions.serving, conditions.terminating) == expected


def test_an_endpoint_names_its_pod_and_node():
    member = endpoint(service(), pod(), "IPv4")
    assert member.addresses == ["10.244.0.2"]
    assert (member.targetRef.kind, member.targetRef.name, member.targetRef.uid) == (
        "Pod", "one", "uid-one",
    )  # fmt: skip
    assert member.nodeName == "node0"
    assert member.zone is None
    assert endpoint(service(), pod(), "IPv6").addresses == ["fd00::2"]


@pytest.mark.parametrize(
    ("hostname", "subdomain", "expected"),
    [("vm1", "web", "vm1"), ("vm1", "other", None), ("vm1", None, None), (None, "web", None)],
)
def test_hostnames_are_those_of_pods_with_the_services_subdomain(hostname, subdomain, expected):
    one = pod(hostname=hostname, subdomain=subdomain)
    assert endpoint(service(), one, "IPv4").hostname == expected


def test_ports_by_number_by_name_and_by_default():
    one = service(
        ports=[
            ServicePort(name="number", port=80, protocol="TCP", targetPort=81),
            ServicePort(name="name", port=80, protocol="TCP", targetPort="http"),
            ServicePort(name="default", port=80, protocol="TCP"),
            ServicePort(name="datagram", port=80, protocol="UDP", targetPort="http"),
            ServicePort(name="unknown", port=80, protocol="TCP", targetPort="nope"),
        ]
    )
    assert ports(one, pod()) == (
        Port("number", "TCP", 81),
        Port("name", "TCP", 8080),
        Port("default", "TCP", 80),
    )


def test_named_ports_are_resolved_without_repeated_scans():
    class Looked(list):
        times = 0

        def __iter__(self):
            self.times += 1
            return super().__iter__()

    offered = Looked(
        ContainerPort(name=name, containerPort=number)
        for name, number in (("http", 8080), ("more", 8081), ("http", 9090))
    )
    one = pod()
    one.spec.containers[0].ports = offered
    names = ["http", "more", *(f"none-{number}" for number in range(50))]
    desired = [ServicePort(name=name, port=80, protocol="TCP", targetPort=name) for name in names]
    found = ports(service(ports=desired), one)
    assert found == (Port("http", "TCP", 8080), Port("more", "TCP", 8081))
    assert offered.times == 1


def test_each_ip_family_has_its_own_slices():
    found = groups(service(ipFamilies=["IPv4", "IPv6"]), [pod()])
    assert [(each.address_type, len(each.endpoints)) for each in found] == [
        ("IPv4", 1),
        ("IPv6", 1),
    ]


def test_slices_of_headless_services_have_the_label_and_need_no_ports():
    one = service(clusterIP="None", ports=None)
    (found,) = groups(one, [pod()])
    assert found.ports == ()
    assert len(found.endpoints) == 1
    assert frame(one, "").labels["service.kubernetes.io/headless"] == ""
    assert "service.kubernetes.io/headless" not in frame(service(), "").labels


def test_slices_have_the_labels_of_the_service_except_reserved_ones():
    one = service()
    one.metadata.labels = {"tier": "front", "kubernetes.io/service-name": "lie"}
    assert frame(one, "").labels == {
        "tier": "front",
        "kubernetes.io/service-name": "web",
        "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io",
    }


def test_endpoints_have_ready_and_not_ready_addresses():
    found = endpoints_object.plan(service(), [pod(), pod("ill", number=3, ready=False)], None, "")
    (subset,) = found["subsets"]
    assert [each.ip for each in subset.addresses] == ["10.244.0.2"]
    assert [each.ip for each in subset.notReadyAddresses] == ["10.244.0.3"]
    assert [(each.port, each.protocol) for each in subset.ports] == [(8080, "TCP")]
    assert found["metadata"]["labels"] == {
        "endpoints.kubernetes.io/managed-by": "endpoint-controller"
    }


def test_endpoints_omit_terminating_pods_unless_published():
    going = pod(going=True)
    assert endpoints_object.plan(service(), [going], None, "")["subsets"] == []
    always = service(publishNotReadyAddresses=True)
    (subset,) = endpoints_object.plan(always, [going], None, "")["subsets"]
    assert len(subset.addresses) == 1


def test_endpoints_group_ports_of_the_same_pods():
    bare = pod("bare", number=3)
    bare.spec.containers = [Container(name="c")]
    one = service(
        ports=[
            ServicePort(name="a", port=80, protocol="TCP", targetPort=81),
            ServicePort(name="b", port=80, protocol="TCP", targetPort=82),
            ServicePort(name="c", port=80, protocol="TCP", targetPort="http"),
        ]
    )
    found = endpoints_object.plan(one, [pod(), bare], None, "")["subsets"]
    shown = [
        ([each.ip for each in subset.addresses], [port.name for port in subset.ports])
        for subset in found
    ]
    assert shown == [(["10.244.0.2", "10.244.0.3"], ["a", "b"]), (["10.244.0.2"], ["c"])]


def test_grouping_of_ports_does_not_compare_all_pairs(
    monkeypatch,
):
    compared = []
    monkeypatch.setattr(
        EndpointAddress, "__eq__", lambda one, other: compared.append(1) or one is other
    )
    numbers = range(1, 8)
    pods = [pod(f"p{number}", number=number) for number in numbers]
    for number, each in zip(numbers, pods, strict=True):
        each.spec.containers[0].ports = [
            ContainerPort(name=f"n{port}", containerPort=port)
            for port in range(1, 128)
            if port >> (number - 1) & 1
        ]
    desired = [
        ServicePort(name=f"n{port}", port=port, protocol="TCP", targetPort=f"n{port}")
        for port in range(1, 128)
    ]
    written = endpoints_object.plan(service(ports=desired), pods, None, "")
    assert len(written["subsets"]) == 127
    assert not compared


def test_endpoints_are_truncated_at_a_thousand_addresses():
    pods = [pod(f"p{n}", number=n, ready=n >= 300) for n in range(1, 1301)]
    found = endpoints_object.plan(service(), pods, None, "")
    (subset,) = found["subsets"]
    assert len(subset.addresses) == 1000
    assert not subset.notReadyAddresses
    assert found["metadata"]["annotations"] == {
        "endpoints.kubernetes.io/over-capacity": "truncated"
    }
    pods = [pod(f"p{n}", number=n, ready=n <= 999) for n in range(1, 1301)]
    (subset,) = endpoints_object.plan(service(), pods, None, "")["subsets"]
    assert (len(subset.addresses), len(subset.notReadyAddresses)) == (999, 1)


def test_unchanged_endpoints_are_not_written():
    written = endpoints_object.plan(service(), [pod()], None, "")
    present = Endpoints(
        metadata=ObjectMeta(name="web", labels=written["metadata"]["labels"], resourceVersion="4"),
        subsets=written["subsets"],
    )
    assert endpoints_object.plan(service(), [pod()], present, "2026-01-01T00:00:00Z") is None
    patch = endpoints_object.plan(service(), [pod(ready=False)], present, "2026-01-01T00:00:00Z")
    assert patch["metadata"]["resourceVersion"] == "4"


def test_custom_endpoints_are_mirrored_by_ip_family():
    one = Endpoints.from_dict(
        {
            "metadata": {"name": "web", "namespace": "default", "uid": "u", "labels": {"a": "b"}},
            "subsets": [
                {
                    "addresses": [{"ip": "192.0.2.1"}, {"ip": "2001:db8::1"}, {"ip": "nonsense"}],
                    "notReadyAddresses": [{"ip": "192.0.2.2", "hostname": "h"}],
                    "ports": [{"name": "http", "port": 80}],
                }
            ],
        }
    )
    assert mirror.is_mirrored(one)
    found = {each.address_type: list(each.endpoints.values()) for each in mirror.groups(one)}
    assert [(e.addresses[0], e.conditions.ready) for e in found["IPv4"]] == [
        ("192.0.2.1", True), ("192.0.2.2", False)
    ]  # fmt: skip
    assert [each.addresses[0] for each in found["IPv6"]] == ["2001:db8::1"]
    labels = mirror.frame(one).labels
    assert labels["a"] == "b"
    assert labels["endpointslice.kubernetes.io/managed-by"] == (
        "endpointslicemirroring-controller.k8s.io"
    )
    assert mirror.frame(one).owner["kind"] == "Endpoints"


@pytest.mark.parametrize(
    "metadata",
    [
        {"labels": {"endpointslice.kubernetes.io/skip-mirror": "true"}},
        {"annotations": {"control-plane.alpha.kubernetes.io/leader": "{}"}},
    ],
)
def test_endpoints_with_the_skip_label_are_not_mirrored(metadata):
    assert not mirror.is_mirrored(Endpoints.from_dict({"metadata": metadata}))


def test_at_most_a_thousand_addresses_are_mirrored():
    listed = [{"ip": f"10.0.{n // 250}.{n % 250}"} for n in range(1200)]
    one = Endpoints.from_dict({"metadata": {"name": "web"}, "subsets": [{"addresses": listed}]})
    (found,) = mirror.groups(one)
    assert len(found.endpoints) == 1000
    assert mirror.skipped(one) == 200


def test_the_trigger_time_of_a_change():
    triggers, one = Triggers(), pod()
    assert triggers.time(service(), [one]) == "2026-01-01T00:00:00Z"
    assert triggers.time(service(), [one]) == ""
    one.status.conditions[0].lastTransitionTime = NOW + timedelta(seconds=9)
    new = pod("new", number=3)
    new.status.conditions[0].lastTransitionTime = NOW + timedelta(seconds=7)
    assert triggers.time(service(), [one, new]) == "2026-01-01T00:00:07Z"
    assert triggers.time(service(), [new]) == ""
