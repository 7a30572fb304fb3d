"""Real guests on three hosts: they reach each other, and their users reach them."""

import os

import pytest
from tests.cluster import until
from tests.hosts import site, web_servers
from tests.terminal import Terminal

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

SET = "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstancereplicasets"
REFERENCE = "kubevirt/cirros-container-disk-demo:latest"
SERVICE = {
    "metadata": {"name": "web"},
    "spec": {"selector": {"bench": "web"}, "ports": [{"port": 80}]},
}


@pytest.fixture(scope="module")
def guests(tmp_path_factory, demo_disk):
    """Three hosts with a guest each, whose web servers answer."""
    if os.geteuid() != 0:
        pytest.skip("network namespaces of hosts need root")
    with site(tmp_path_factory.mktemp("site"), 3) as made:
        for host in made.hosts:
            host.corral("image", "import", str(demo_disk), REFERENCE)
        made.up("--boots", "1")
        for host in made.hosts[1:]:
            made.join(host, "--boots", "1")
        until("all nodes are ready", lambda: made.ready(*made.hosts))
        made.api.one.call("POST", SET, web_servers(3))
        made.api.one.call("POST", "/api/v1/namespaces/default/services", SERVICE)
        until("the guests answer", lambda: len(made.ready_pods()) == 3)
        until("their agents are connected", lambda: connected(made) == 3)
        yield made


def connected(made):
    """The number of guests whose agent runs commands: it starts after the web server."""
    path = "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstances"
    return sum(
        each["type"] == "AgentConnected" and each["status"] == "True"
        for vmi in made.api.one.call("GET", path)["items"]
        for each in vmi.get("status", {}).get("conditions", ())
    )


def name_of(guests, host):
    return guests.ready_pods()[host.name]["metadata"]["name"]


def in_guest(guests, host, *command):
    """Run a command in the guest of a host, from the first host."""
    return guests.first.kubectl("exec", name_of(guests, host), "--", *command)


def test_a_set_is_spread_over_the_hosts(guests):
    pods = guests.ready_pods()
    assert set(pods) == {"host1", "host2", "host3"}
    assert len({pod["status"]["podIP"] for pod in pods.values()}) == 3
    assert {name: pod["status"]["hostIP"] for name, pod in pods.items()} == {
        host.name: host.address for host in guests.hosts
    }


@pytest.mark.parametrize(("source", "target"), [(0, 1), (1, 0), (1, 2)])
def test_guests_of_two_hosts_can_connect(guests, source, target):
    pod = guests.ready_pods()[guests.hosts[target].name]
    name = pod["metadata"]["labels"]["vm.kubevirt.io/name"]
    url = f"http://{pod['status']['podIP']}/"
    assert in_guest(guests, guests.hosts[source], "wget", "-q", "-O", "-", url).strip() == name


def test_a_service_and_its_dns_name_reach_other_hosts(guests):
    address = guests.api.get("svc", "web")["spec"]["clusterIP"]
    names = {
        pod["metadata"]["labels"]["vm.kubevirt.io/name"] for pod in guests.ready_pods().values()
    }
    for where in (address, "web", "web.default.svc.cluster.local"):
        loop = f"for n in $(seq 20); do wget -q -O - http://{where}/; echo; done"
        said = in_guest(guests, guests.hosts[1], "sh", "-c", loop).split()
        assert len(said) == 20
        assert set(said) <= names
        assert len(set(said)) > 1, "it leads to other hosts as well"


def test_logs_of_a_remote_guest(guests):
    name = name_of(guests, guests.hosts[2])
    until("the guest asks for a login", lambda: "login:" in guests.first.kubectl("logs", name))


def test_the_console_of_a_remote_guest(guests):
    pod = guests.ready_pods()["host2"]
    name = pod["metadata"]["labels"]["vm.kubevirt.io/name"]
    command = guests.first.command(*guests.api.corral_command("console", name))
    terminal = Terminal(command, guests.first.environment())
    terminal.read_until(b"Successfully connected")
    terminal.type(b"\n")
    terminal.read_until(b"login:")
    terminal.type(b"\x1d")
    assert terminal.end() == 0


def test_usage_of_remote_machines(guests):
    until("all nodes have samples", lambda: "unknown" not in top(guests, "nodes"))
    assert all(host.name in top(guests, "nodes") for host in guests.hosts)
    pods = {pod["metadata"]["name"] for pod in guests.ready_pods().values()}
    until("all pods have samples", lambda: all(name in top(guests, "pods") for name in pods))


def top(guests, what):
    return guests.first.kubectl("top", what, check=False)


def test_guests_run_on_without_their_agent(guests):
    host = guests.hosts[1]
    boot = ("cat", "/proc/sys/kernel/random/boot_id")
    before = in_guest(guests, host, *boot)
    address = guests.ready_pods()[host.name]["status"]["podIP"]
    host.kill()
    url = f"http://{address}/"
    assert in_guest(guests, guests.hosts[2], "wget", "-q", "-O", "-", url).strip()
    host.corral("join", "--detach", "--boots", "1")
    until("the guest is ready", lambda: host.name in guests.ready_pods())
    assert in_guest(guests, host, *boot) == before


def test_leaving_shuts_guests_down_and_they_are_replaced(guests):
    host = guests.hosts[2]
    guests.first.kubectl("cordon", host.name)
    assert "1 machine shut down" in host.corral("leave", "--grace-period", "0")
    assert host.name not in guests.nodes()
    until("the guest is replaced", lambda: replicas(guests) == 3)
    assert {each["status"].get("nodeName") for each in guests.api.items("vmi")} == {
        "host1",
        "host2",
    }


def replicas(guests):
    nodes = [each["status"].get("nodeName") for each in guests.api.items("vmi")]
    return sum(node in ("host1", "host2") for node in nodes)
