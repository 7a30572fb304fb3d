"""Commands in virtctl's grammar, against a live server."""

import re

import pytest
from tests.conformance.api import until
from tests.conformance.manifests import core, machine, machines, replica_set, sets

pytestmark = pytest.mark.conformance


@pytest.fixture
def corral(user, namespace):
    """Run a command in the test's namespace; answers what it printed."""

    def corral(*arguments: str, check: bool = True) -> str:
        return user.corral("--namespace", namespace, *arguments, check=check)

    return corral


@pytest.fixture
def one(api, namespace) -> str:
    """A machine that runs."""
    api.create(machines(namespace), machine("one"))
    path = machines(namespace, "one")
    until("it runs", lambda: api.get_document(path)["status"]["phase"] == "Running")
    return "one"


def test_an_exposed_set(api, namespace, corral):
    made = api.create(sets(namespace), replica_set("web", 2))
    said = corral("expose", "VMIRS", "web", "--name", "s", "--port", "27017", "--target-port", "22")
    assert said == "Service s successfully created for vmirs web\n"
    service = api.get_document(core("services", namespace, "s"))
    assert service["spec"]["selector"] == {"app": "web"}
    assert service["spec"]["ports"] == [{"port": 27017, "protocol": "TCP", "targetPort": 22}]
    assert service["spec"]["clusterIP"]
    assert service["metadata"]["ownerReferences"] == [
        {
            "apiVersion": "kubevirt.io/v1",
            "kind": "VirtualMachineInstanceReplicaSet",
            "name": "web",
            "uid": made["metadata"]["uid"],
            "controller": True,
            "blockOwnerDeletion": False,
        }
    ]
    again = corral("expose", "vmirs", "web", "--name", "s", "--port", "1", check=False)
    assert again == 'error: service creation failed: services "s" already exists\n'
    api.delete(sets(namespace, "web"))
    until("its Service goes with it", lambda: not api.items(core("services", namespace)))


def test_an_exposed_vmi_is_selected_by_its_label(api, namespace, one, corral):
    corral("expose", "vmi", one, "--name", "s", "--port", "22", "--cluster-ip", "None")
    service = api.get_document(core("services", namespace, "s"))
    assert service["spec"]["clusterIP"] == "None"
    path = core("endpoints", namespace, "s")
    until("it is found", lambda: "addresses" in str(api.get(path).text))


def test_a_service_without_a_port_gets_the_ports_of_the_vmi(api, namespace, corral):
    ports = [{"port": 80}, {"port": 53, "protocol": "UDP"}]
    spec = {
        "networks": [{"name": "pods", "pod": {}}],
        "domain": {
            "devices": {"interfaces": [{"name": "pods", "masquerade": {}, "ports": ports}]},
            "resources": {"requests": {"memory": "64M"}},
        },
    }
    api.create(machines(namespace), machine("two", **spec))
    corral("expose", "vmi", "two", "--name", "s")
    made = api.get_document(core("services", namespace, "s"))["spec"]["ports"]
    assert [(port["name"], port["port"], port["protocol"]) for port in made] == [
        ("port-1", 80, "TCP"),
        ("port-2", 53, "UDP"),
    ]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ["expose", "vmi", "none", "--name", "s", "--port", "1"],
            'error fetching VirtualMachineInstance: virtualmachineinstances.kubevirt.io "none"',
        ),
        (
            ["expose", "vm", "none", "--name", "s", "--port", "1"],
            "error fetching VirtualMachine: ",
        ),
        (["pause", "vmi", "none"], "Error pausing VirtualMachineInstance none: "),
        (["pause", "vm", "none"], "Error getting VirtualMachine none: "),
        (["reset", "none"], "Error reseting VirtualMachineInstance none: "),
        (["guestosinfo", "none"], "Error getting guestosinfo of VirtualMachineInstance none: "),
        (["port-forward", "--stdio=true", "vmi/none", "22"], "can't access vmi/none/"),
        (["vnc", "none", "--proxy-only"], "Can't access VMI none: "),
        (["console", "none"], "virtualmachineinstance"),
        (["evacuate-cancel", "vm", "none"], "error canceling evacuation for VM "),
        (["evacuate-cancel", "node", "none"], 'error getting node none: nodes "none" not found'),
    ],
)
def test_a_missing_vmi(arguments, said, corral):
    assert f"error: {said}" in corral(*arguments, check=False)


def test_actions_on_a_vmi(one, corral):
    assert corral("pause", "vmi", one) == f"VMI {one} was scheduled to pause\n"
    assert "VMI is already paused" in corral("pause", "vmi", one, check=False)
    assert corral("unpause", "vmi", one) == f"VMI {one} was scheduled to unpause\n"
    assert corral("soft-reboot", one) == f"VMI {one} was scheduled to soft-reboot\n"
    assert corral("reset", one) == f"VMI {one} was scheduled to reset\n"
    said = corral("evacuate-cancel", "vmi", one)
    assert said.endswith(f"/{one} was canceled evacuation\n")


def test_a_screenshot(one, corral, tmp_path):
    corral("vnc", "screenshot", one, "--file", str(tmp_path / "screen.png"))
    assert (tmp_path / "screen.png").read_bytes().startswith(b"\x89PNG")


def test_the_servers_version(corral):
    said = corral("version")
    assert re.search(r"^server  v1\.\S+ \(KubeVirt\), v1\.\S+ \(Kubernetes, ", said, re.M)
    assert "server" not in corral("version", "--client")
