"""``corral expose`` creates the same Service as virtctl."""

import pytest

from corral.cli.errors import Problem
from corral.cli.main import run
from corral.cli.virtctl.expose import ServiceOptions, service_for

SET = "VirtualMachineInstanceReplicaSet"
MACHINE = "VirtualMachineInstance"


def a_set(**selector) -> dict:
    return {
        "metadata": {"name": "web", "uid": "u-1"},
        "spec": {"selector": selector, "template": {"spec": {}}},
    }


def a_machine(name: str = "one", **spec) -> dict:
    return {"metadata": {"name": name, "uid": "u-1"}, "spec": spec}


def listening(*ports: dict) -> dict:
    """A machine's spec with ports declared in the pod network, and others elsewhere."""
    return {
        "networks": [{"name": "lab", "multus": {}}, {"name": "pods", "pod": {}}],
        "domain": {
            "devices": {
                "interfaces": [
                    {"name": "lab", "ports": [{"port": 9}]},
                    {"name": "pods", "masquerade": {}, "ports": list(ports)},
                ]
            }
        },
    }


def test_a_set_is_exposed_by_its_selector_and_owns_the_service():
    service = service_for(
        a_set(matchLabels={"app": "web"}),
        SET,
        ServiceOptions(name="s", port=27017, target_port="22"),
    )
    assert service["spec"] == {
        "type": "ClusterIP",
        "selector": {"app": "web"},
        "ports": [{"protocol": "TCP", "port": 27017, "targetPort": 22}],
    }
    assert service["metadata"] == {
        "name": "s",
        "ownerReferences": [
            {
                "apiVersion": "kubevirt.io/v1",
                "kind": SET,
                "name": "web",
                "uid": "u-1",
                "controller": True,
                "blockOwnerDeletion": False,
            }
        ],
    }


@pytest.mark.parametrize("kind", [MACHINE, "VirtualMachine"])
def test_a_vmi_is_exposed_by_its_id(kind):
    service = service_for(a_machine("x" * 70), kind, ServiceOptions(name="s", port=1))
    ((label, value),) = service["spec"]["selector"].items()
    assert label == "vmi.kubevirt.io/id"
    assert len(value) == 63
    assert value.startswith("x" * 54 + "-")


def test_all_flags_reach_the_service():
    request = ServiceOptions(
        name="s", port=80, target_port="http", port_name="web", protocol="UDP",
        type="LoadBalancer", cluster_ip="10.96.1.2", external_ip="192.0.2.1",
        load_balancer_ip="127.0.0.2", node_port=30080, ip_family="IPv4,IPv6",
        ip_family_policy="PreferDualStack",
    )  # fmt: skip
    assert service_for(a_machine(), MACHINE, request)["spec"] == {
        "type": "LoadBalancer",
        "selector": {"vmi.kubevirt.io/id": "one"},
        "ports": [
            {
                "name": "web",
                "protocol": "UDP",
                "port": 80,
                "targetPort": "http",
                "nodePort": 30080,
            }
        ],
        "clusterIP": "10.96.1.2",
        "externalIPs": ["192.0.2.1"],
        "loadBalancerIP": "127.0.0.2",
        "ipFamilies": ["IPv4", "IPv6"],
        "ipFamilyPolicy": "PreferDualStack",
    }


def test_ports_default_to_those_of_the_pod_network():
    spec = listening({"port": 80, "protocol": "TCP"}, {"port": 53, "protocol": "UDP"}, {"port": 7})
    expected = [
        {"name": "port-1", "port": 80, "protocol": "TCP"},
        {"name": "port-2", "port": 53, "protocol": "UDP"},
        {"name": "port-3", "port": 7},
    ]
    request = ServiceOptions(name="s")
    assert service_for(a_machine(**spec), MACHINE, request)["spec"]["ports"] == expected
    owner = a_set(matchLabels={"app": "web"})
    owner["spec"]["template"]["spec"] = spec
    assert service_for(owner, SET, request)["spec"]["ports"] == expected


@pytest.mark.parametrize(
    ("owner", "kind", "message"),
    [
        (a_set(), SET, f"cannot expose {SET} without any selector labels"),
        (
            a_set(matchExpressions=[{"key": "a", "operator": "Exists"}]),
            SET,
            f"cannot expose {SET} without any selector labels",
        ),
        (
            a_set(matchLabels={"a": "b"}, matchExpressions=[{"key": "a", "operator": "Exists"}]),
            SET,
            f"cannot expose {SET} with match expressions",
        ),
        (a_set(matchLabels={"a": "b"}), SET, "couldn't find port via --port flag or introspection"),
        (a_machine(), MACHINE, "couldn't find port via --port flag or introspection"),
        (
            a_machine(**listening()),
            MACHINE,
            "couldn't find port via --port flag or introspection",
        ),
    ],
)
def test_invalid_targets_are_rejected(owner, kind, message):
    with pytest.raises(Problem, match=message):
        service_for(owner, kind, ServiceOptions(name="s"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["vmpool", "x"], "unsupported resource type: vmpool"),
        (["vmi", "x", "--protocol", "SCTP"], "unknown protocol: SCTP"),
        (["vmi", "x", "--type", "ExternalName"], "type: ExternalName not supported"),
        (["vmi", "x", "--type", "Other"], "unknown service type: Other"),
        (["vmi", "x", "--ip-family", "IPX"], "unknown IPFamily/s: IPX"),
        (["vmi", "x", "--ip-family-policy", "x"], "unknown IPFamilyPolicy/s: x"),
    ],
)
def test_invalid_flags_are_rejected_with_virtctls_messages(arguments, message, nobody_home, capsys):
    assert run(["expose", *arguments, "--name", "s"]) == 1
    assert f"error: {message}\n" in capsys.readouterr().err
