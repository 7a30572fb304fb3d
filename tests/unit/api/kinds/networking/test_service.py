"""Services: what they get, what kubectl prints of them, what they may not be, how they change."""

from copy import deepcopy
from typing import Any

import pytest

from corral.api.kinds.networking.service import SERVICE

Document = dict[str, Any]


def service(**spec: Any) -> Document:
    """A service as somebody sends it."""
    return {
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {"ports": [{"port": 80}], **spec},
    }


def complete(**spec: Any) -> Document:
    """A service that has all that every service has, and its address."""
    document = service(**spec)
    SERVICE.default_create(document)
    SERVICE.default(document)
    if document["spec"]["type"] != "ExternalName":
        document["spec"].setdefault("clusterIP", "10.96.0.7")
        document["spec"].setdefault("clusterIPs", [document["spec"]["clusterIP"]])
        document["spec"].setdefault("ipFamilies", ["IPv4"])
        document["spec"].setdefault("ipFamilyPolicy", "SingleStack")
    return document


def printed(document: Document) -> Document:
    return {column.name: column.cell(document) for column in SERVICE.columns}


def messages(document: Document, old: Document | None = None) -> list[str]:
    causes = SERVICE.validate(document, old, "kubernetes-admin").causes
    return [f"{cause.field}: {cause.message}" for cause in causes]


# ------------------------------------------------------------------- defaults


def test_defaults_of_services():
    document = service()
    SERVICE.default_create(document)
    SERVICE.default(document)
    assert document["spec"] == {
        "type": "ClusterIP",
        "sessionAffinity": "None",
        "internalTrafficPolicy": "Cluster",
        "ports": [{"port": 80, "protocol": "TCP", "targetPort": 80}],
    }
    assert document["status"] == {"loadBalancer": {}}


def test_empty_values_count_as_unset():
    document = service(
        type="",
        clusterIP="",
        clusterIPs=[],
        selector={},
        healthCheckNodePort=0,
        publishNotReadyAddresses=False,
        ports=[{"port": 22, "name": "", "targetPort": "", "protocol": "", "nodePort": 0}],
    )
    SERVICE.default(document)
    assert document["spec"] == {
        "type": "ClusterIP",
        "sessionAffinity": "None",
        "internalTrafficPolicy": "Cluster",
        "ports": [{"port": 22, "protocol": "TCP", "targetPort": 22}],
    }


def test_defaults_are_idempotent():
    for kind in ("ClusterIP", "NodePort", "LoadBalancer", "ExternalName"):
        document = service(type=kind, sessionAffinity="ClientIP", externalIPs=["192.0.2.1"])
        SERVICE.default(document)
        again = deepcopy(document)
        SERVICE.default(again)
        assert again == document


def test_session_affinity_has_a_default_timeout():
    document = service(sessionAffinity="ClientIP")
    SERVICE.default(document)
    assert document["spec"]["sessionAffinityConfig"] == {"clientIP": {"timeoutSeconds": 10800}}
    document["spec"]["sessionAffinity"] = "None"
    SERVICE.default(document)
    assert "sessionAffinityConfig" not in document["spec"]


def test_external_traffic_policy_has_a_default():
    inner, outer, balanced, elsewhere = (
        service(**spec)
        for spec in (
            {},
            {"externalIPs": ["192.0.2.1"]},
            {"type": "LoadBalancer"},
            {"type": "ExternalName"},
        )
    )
    for document in (inner, outer, balanced, elsewhere):
        SERVICE.default(document)
    assert "externalTrafficPolicy" not in inner["spec"]
    assert outer["spec"]["externalTrafficPolicy"] == "Cluster"
    assert balanced["spec"]["externalTrafficPolicy"] == "Cluster"
    assert balanced["spec"]["allocateLoadBalancerNodePorts"] is True
    assert "internalTrafficPolicy" not in elsewhere["spec"]


def test_node_ports_of_a_load_balancer_can_be_disabled():
    document = service(type="LoadBalancer", allocateLoadBalancerNodePorts=False)
    SERVICE.default(document)
    assert document["spec"]["allocateLoadBalancerNodePorts"] is False


def test_a_requested_cluster_ip_is_the_first_of_cluster_ips():
    document = service(clusterIP="10.96.0.10")
    SERVICE.default_create(document)
    assert document["spec"]["clusterIPs"] == ["10.96.0.10"]


# -------------------------------------------------------------------- columns


def test_columns_are_kubernetes():
    names = [column.name.upper() for column in SERVICE.columns if not column.priority]
    assert names == ["TYPE", "CLUSTER-IP", "EXTERNAL-IP", "PORT(S)", "AGE"]
    assert [column.name for column in SERVICE.columns if column.priority] == ["Selector"]


def test_a_service_in_a_table():
    document = complete(
        type="NodePort",
        selector={"tier": "front", "app": "web"},
        ports=[{"name": "a", "port": 80, "nodePort": 30080}, {"name": "b", "port": 53}],
    )
    document["spec"]["ports"][1]["protocol"] = "UDP"
    assert printed(document) | {"Age": ""} == {
        "Type": "NodePort",
        "Cluster-IP": "10.96.0.7",
        "External-IP": "<none>",
        "Port(s)": "80:30080/TCP,53/UDP",
        "Age": "",
        "Selector": "app=web,tier=front",
    }


@pytest.mark.parametrize(
    ("spec", "ingress", "outside"),
    [
        ({}, [], "<none>"),
        ({"externalIPs": ["192.0.2.2", "192.0.2.1"]}, [], "192.0.2.2,192.0.2.1"),
        ({"type": "ExternalName", "externalName": "example.com"}, [], "example.com"),
        ({"type": "LoadBalancer"}, [], "<pending>"),
        ({"type": "LoadBalancer"}, [{"ip": "b"}, {"hostname": "a"}, {"ip": "b"}], "a,b"),
        ({"type": "LoadBalancer", "externalIPs": ["c"]}, [{"ip": "d"}], "d,c"),
        ({"type": "LoadBalancer", "externalIPs": ["c"]}, [], "c"),
    ],
)
def test_external_addresses_in_tables(spec, ingress, outside):
    document = complete(**spec) | {"status": {"loadBalancer": {"ingress": ingress}}}
    assert printed(document)["External-IP"] == outside


def test_an_empty_service_in_a_table():
    shown = printed(complete(type="ExternalName", ports=[], externalName="example.com"))
    assert (shown["Cluster-IP"], shown["Port(s)"], shown["Selector"]) == ("<none>",) * 3


# ---------------------------------------------------------------------- rules


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"clusterIP": "None", "ports": []},
        {"type": "ExternalName", "externalName": "example.com.", "ports": []},
        {"ports": [{"name": "a", "port": 53}, {"name": "b", "port": 53, "protocol": "UDP"}]},
        {"ports": [{"port": 80, "targetPort": "web", "appProtocol": "kubernetes.io/h2c"}]},
        {"type": "LoadBalancer", "loadBalancerSourceRanges": [" 10.0.0.0/8 "]},
        {"type": "LoadBalancer", "loadBalancerClass": "example.com/one"},
        {"sessionAffinity": "ClientIP"},
        {"trafficDistribution": "PreferClose"},
        {
            "clusterIPs": ["10.96.0.9", "fd00::9"],
            "clusterIP": "10.96.0.9",
            "ipFamilies": ["IPv4", "IPv6"],
            "ipFamilyPolicy": "RequireDualStack",
        },
    ],
)
def test_valid_services_are_accepted(spec):
    assert messages(complete(**spec)) == []


@pytest.mark.parametrize(
    ("spec", "fault"),
    [
        ({"ports": []}, "spec.ports: Required value"),
        (
            {"type": "x"},
            (
                'spec.type: Unsupported value: "x": supported values: "ClusterIP", "ExternalName", '
                '"LoadBalancer", "NodePort"'
            ),
        ),
        (
            {"type": "NodePort", "clusterIP": "None"},
            (
                "spec.clusterIPs[0]: Invalid value: \"None\": may not be set to 'None' for "
                "NodePort services"
            ),
        ),
        ({"type": "ExternalName"}, "spec.externalName: Required value"),
        (
            {"type": "ExternalName", "externalName": "a", "ipFamilies": ["IPv4"]},
            "spec.ipFamilies: Forbidden: may not be set for ExternalName services",
        ),
        (
            {"ports": [{"port": 0, "targetPort": 1}]},
            "spec.ports[0].port: Invalid value: 0: must be between 1 and 65535, inclusive",
        ),
        (
            {"ports": [{"port": 80, "targetPort": 70000}]},
            (
                "spec.ports[0].targetPort: Invalid value: 70000: must be between 1 and 65535, "
                "inclusive"
            ),
        ),
        (
            {"ports": [{"port": 80, "targetPort": "8080"}]},
            (
                'spec.ports[0].targetPort: Invalid value: "8080": must contain at least one letter '
                "(a-z)"
            ),
        ),
        (
            {"ports": [{"port": 80, "protocol": "tcp"}]},
            (
                'spec.ports[0].protocol: Unsupported value: "tcp": supported values: "SCTP", '
                '"TCP", "UDP"'
            ),
        ),
        (
            {"ports": [{"port": 80, "nodePort": 30000}]},
            "spec.ports[0].nodePort: Forbidden: may not be used when `type` is 'ClusterIP'",
        ),
        (
            {"ports": [{"port": 80}, {"port": 81, "name": "b"}]},
            "spec.ports[0].name: Required value",
        ),
        (
            {"ports": [{"port": 80, "name": "b"}, {"port": 81, "name": "b"}]},
            'spec.ports[1].name: Duplicate value: "b"',
        ),
        (
            {"ports": [{"port": 80, "name": "a"}, {"port": 80, "name": "b"}]},
            (
                'spec.ports[1]: Duplicate value: {"Name":"","Protocol":"TCP","AppProtocol":null,'
                '"Port":80,"TargetPort":0,"NodePort":0}'
            ),
        ),
        (
            {
                "type": "NodePort",
                "ports": [
                    {"port": 80, "name": "a", "nodePort": 30000},
                    {"port": 81, "name": "b", "nodePort": 30000},
                ],
            },
            "spec.ports[1].nodePort: Duplicate value: 30000",
        ),
        (
            {"sessionAffinity": "x"},
            'spec.sessionAffinity: Unsupported value: "x": supported values: "ClientIP", "None"',
        ),
        (
            {
                "sessionAffinity": "ClientIP",
                "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 0}},
            },
            (
                "spec.sessionAffinityConfig.clientIP.timeoutSeconds: Invalid value: 0: must be "
                "greater than 0 and less than 86400"
            ),
        ),
        (
            {"externalIPs": ["169.254.0.1"]},
            (
                'spec.externalIPs[0]: Invalid value: "169.254.0.1": may not be in the link-local '
                "range (169.254.0.0/16, fe80::/10)"
            ),
        ),
        (
            {"loadBalancerSourceRanges": ["10.0.0.0/8"]},
            (
                "spec.LoadBalancerSourceRanges: Forbidden: may only be used when `type` is "
                "'LoadBalancer'"
            ),
        ),
        (
            {"allocateLoadBalancerNodePorts": False},
            (
                "spec.allocateLoadBalancerNodePorts: Forbidden: may only be used when `type` is "
                "'LoadBalancer'"
            ),
        ),
        (
            {"loadBalancerClass": "a"},
            "spec.loadBalancerClass: Forbidden: may only be used when `type` is 'LoadBalancer'",
        ),
        (
            {"externalTrafficPolicy": "Local"},
            (
                'spec.externalTrafficPolicy: Invalid value: "Local": may only be set for '
                "externally-accessible services"
            ),
        ),
        (
            {"type": "NodePort", "externalTrafficPolicy": "x"},
            (
                'spec.externalTrafficPolicy: Unsupported value: "x": supported values: "Cluster", '
                '"Local"'
            ),
        ),
        (
            {"internalTrafficPolicy": "x"},
            (
                'spec.internalTrafficPolicy: Unsupported value: "x": supported values: "Cluster", '
                '"Local"'
            ),
        ),
        (
            {"healthCheckNodePort": 30000},
            (
                "spec.healthCheckNodePort: Invalid value: 30000: may only be set when `type` is "
                "'LoadBalancer' and `externalTrafficPolicy` is 'Local'"
            ),
        ),
        (
            {"clusterIP": "10.96.0.1", "clusterIPs": ["10.96.0.2"]},
            'spec.clusterIPs: Invalid value: ["10.96.0.2"]: first value must match `clusterIP`',
        ),
        (
            {"clusterIP": "x"},
            (
                'spec.clusterIPs[0]: Invalid value: "x": must be a valid IP address, (e.g. '
                "10.9.8.7 or 2001:db8::ffff)"
            ),
        ),
        (
            {"clusterIP": "None", "clusterIPs": ["None", "10.96.0.1"]},
            (
                'spec.clusterIPs: Invalid value: ["None","10.96.0.1"]: \'None\' must be the first '
                "and only value"
            ),
        ),
        (
            {"clusterIP": "10.96.0.1", "clusterIPs": ["10.96.0.1", "10.96.0.2"]},
            (
                'spec.clusterIPs: Invalid value: ["10.96.0.1","10.96.0.2"]: may specify no more '
                "than one IP for each IP family"
            ),
        ),
        (
            {"clusterIP": "fd00::1", "ipFamilies": ["IPv4"]},
            (
                'spec.clusterIPs[0]: Invalid value: "fd00::1": expected an IPv4 value as indicated '
                "by `ipFamilies[0]`"
            ),
        ),
        (
            {"ipFamilies": ["IPv4", "IPv4"]},
            'spec.ipFamilies[1]: Duplicate value: "IPv4"',
        ),
        (
            {"ipFamilyPolicy": "x"},
            (
                'spec.ipFamilyPolicy: Unsupported value: "x": supported values: "PreferDualStack", '
                '"RequireDualStack", "SingleStack"'
            ),
        ),
    ],
)
def test_invalid_services_are_rejected(spec, fault):
    assert messages(complete(**spec)) == [fault]


def test_selectors_are_validated_as_labels():
    assert [line.split(": ")[0] for line in messages(complete(selector={"a b": "-"}))] == [
        "spec.selector",
        "spec.selector",
    ]


@pytest.mark.parametrize(
    ("ingress", "faults"),
    [
        ({"ip": "192.0.2.1", "ipMode": "VIP"}, []),
        ({"hostname": "example.com"}, []),
        ({"ip": "x"}, ["ip"]),
        ({"ipMode": "VIP"}, ["ipMode"]),
        ({"ip": "192.0.2.1", "ipMode": "x"}, ["ipMode"]),
        ({"hostname": "A"}, ["hostname"]),
        ({"hostname": "192.0.2.1"}, ["hostname"]),
    ],
)
def test_the_status_of_a_load_balancer_is_validated(ingress, faults):
    document = complete(type="LoadBalancer")
    document["status"] = {"loadBalancer": {"ingress": [ingress]}}
    at = "status.loadBalancer.ingress[0]"
    assert [line.split(": ")[0] for line in messages(document)] == [
        f"{at}.{name}" for name in faults
    ]


def test_only_load_balancers_have_ingress_addresses():
    document = complete()
    document["status"] = {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}}
    assert messages(document) == [
        (
            "status.loadBalancer.ingress[0]: Forbidden: may only be used when `spec.type` is "
            '"LoadBalancer"'
        )
    ]


# -------------------------------------------------------------------- changes


def changed(old: Document, **spec: Any) -> Document:
    """Return the spec stored by an update of a Service."""
    document = service(**spec) | {"status": deepcopy(old["status"])}
    SERVICE.keep(document, deepcopy(old), "kubernetes-admin")
    SERVICE.default(document)
    return document


DUAL = {
    "clusterIP": "10.96.0.9",
    "clusterIPs": ["10.96.0.9", "fd00::9"],
    "ipFamilies": ["IPv4", "IPv6"],
    "ipFamilyPolicy": "RequireDualStack",
}


def test_an_update_without_the_cluster_ip_keeps_it():
    new = changed(complete(clusterIP="10.96.0.9"))
    assert (new["spec"]["clusterIP"], new["spec"]["clusterIPs"]) == ("10.96.0.9", ["10.96.0.9"])


def test_ports_keep_their_node_ports_by_name():
    old = complete(
        type="NodePort",
        ports=[
            {"name": "a", "port": 1, "nodePort": 30001},
            {"name": "b", "port": 2, "nodePort": 30002},
        ],
    )
    ports = [{"name": "b", "port": 5}, {"name": "c", "port": 3}, {"name": "a", "port": 1}]
    new = changed(old, type="NodePort", ports=ports)
    assert [port.get("nodePort") for port in new["spec"]["ports"]] == [30002, None, 30001]


def test_a_node_port_belongs_to_one_port_only():
    old = complete(type="NodePort", ports=[{"name": "a", "port": 1, "nodePort": 30001}])
    ports = [{"name": "a", "port": 1}, {"name": "b", "port": 2, "nodePort": 30001}]
    new = changed(old, type="NodePort", ports=ports)
    assert [port.get("nodePort") for port in new["spec"]["ports"]] == [None, 30001]


def test_an_update_of_cluster_ip_only_updates_cluster_ips():
    old = complete(clusterIP="10.96.0.9", type="ClusterIP")
    moved = changed(old, clusterIP="10.96.0.8", clusterIPs=["10.96.0.9"], ipFamilies=["IPv4"])
    assert moved["spec"]["clusterIPs"] == ["10.96.0.8"]
    assert messages(moved, old) == [
        'spec.clusterIPs[0]: Invalid value: ["10.96.0.8"]: may not change once set'
    ]


def test_a_changed_type_drops_fields_of_the_old_type():
    old = complete(
        type="LoadBalancer",
        externalTrafficPolicy="Local",
        healthCheckNodePort=30009,
        loadBalancerClass="a",
        ports=[{"port": 80, "nodePort": 30001}],
        **DUAL,
    )
    old["status"] = {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}}
    new = changed(old, **(old["spec"] | {"type": "ClusterIP"}))
    gone = {
        *("externalTrafficPolicy", "healthCheckNodePort"),
        *("loadBalancerClass", "allocateLoadBalancerNodePorts"),
    }
    assert old["spec"].keys() - new["spec"].keys() == gone
    assert "nodePort" not in new["spec"]["ports"][0]
    assert new["status"] == {"loadBalancer": {}}
    assert messages(new, old) == []
    away = changed(new, **(new["spec"] | {"type": "ExternalName", "externalName": "a.b"}))
    assert not {"clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"} & away["spec"].keys()
    assert messages(away, new) == []


def test_fields_changed_with_the_type_are_not_dropped():
    old = complete(type="NodePort", ports=[{"port": 80, "nodePort": 30001}])
    ports = [{"port": 80, "nodePort": 30002}]
    new = changed(old, type="ClusterIP", ports=ports, ipFamilies=["IPv4"])
    assert messages(new, old) == [
        "spec.ports[0].nodePort: Forbidden: may not be used when `type` is 'ClusterIP'"
    ]


@pytest.mark.parametrize(
    ("old", "new", "faults"),
    [
        (DUAL, DUAL, []),
        (DUAL, {**DUAL, "clusterIPs": ["10.96.0.9", "fd00::8"]}, ["spec.clusterIPs[1]"]),
        (
            DUAL,
            {**DUAL, "clusterIPs": ["10.96.0.9"], "ipFamilies": ["IPv4"]},
            ["spec.ipFamilyPolicy", "spec.ipFamilyPolicy"],
        ),
        (
            DUAL,
            {
                "clusterIP": "10.96.0.9",
                "clusterIPs": ["10.96.0.9"],
                "ipFamilies": ["IPv4"],
                "ipFamilyPolicy": "SingleStack",
            },
            [],
        ),
        ({"clusterIP": "None"}, {"clusterIP": "10.96.0.9"}, ["spec.clusterIPs[0]"]),
        ({"clusterIP": "None"}, {"clusterIP": "None", "ipFamilies": ["IPv6"]}, []),
        ({"type": "ExternalName", "externalName": "a"}, {"clusterIP": "10.96.0.9"}, []),
        ({"clusterIP": "10.96.0.9"}, DUAL, []),
        ({"clusterIP": "10.96.0.1"}, DUAL, ["spec.clusterIPs[0]"]),
        (
            {"type": "LoadBalancer", "loadBalancerClass": "a"},
            {"type": "LoadBalancer"},
            ["spec.loadBalancerClass"],
        ),
    ],
)
def test_immutable_addresses_and_families(old, new, faults):
    found = messages(complete(**new), complete(**old))
    assert [line.split(": ")[0] for line in found] == faults
