"""Agents that are killed, a first host that is away, a broken cable, and lost packets."""

import contextlib
import subprocess
from collections import Counter

import pytest
from bench.cluster import replica_set
from tests.cluster import until
from tests.hosts import HOLLOW

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

SET = "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstancereplicasets"
REPLICAS = 9
LOSS = """\
table bridge loss {
  counter lost { }
  chain forward {
    type filter hook forward priority 0;
    numgen random mod 100 < 5 counter name lost drop
  }
}
"""


@pytest.fixture(scope="module")
def three(hollow):
    """Three nodes and a set of machines on them."""
    hollow.join(hollow.hosts[2], *HOLLOW)
    until("all nodes are ready", lambda: hollow.ready(*hollow.hosts))
    hollow.api.one.call("POST", SET, replica_set("web", REPLICAS))
    until("all machines run", lambda: len(hollow.running()) == REPLICAS)
    return hollow


def pods(site):
    return {each["metadata"]["uid"]: each["status"]["phase"] for each in site.api.items("pods")}


def test_a_set_is_spread_over_the_hosts(three):
    counts = Counter(three.running().values())
    assert set(counts) == {"host1", "host2", "host3"}
    assert max(counts.values()) - min(counts.values()) <= 1


def test_a_restarted_agent_adopts_its_machines(three):
    before, of_pods = three.running(), pods(three)
    agent = three.hosts[1]
    agent.kill()
    agent.corral("join", "--detach", *HOLLOW)
    until("the node is ready", lambda: three.ready(agent))
    assert three.running() == before
    assert pods(three) == of_pods


def test_nodes_run_on_without_the_first_host(three):
    before, of_pods = three.running(), pods(three)
    agent = three.hosts[1]
    pid = agent.pid
    three.first.corral("stop")
    three.up(*HOLLOW)
    until("all nodes are ready", lambda: three.ready(*three.hosts))
    assert agent.pid == pid
    assert three.running() == before
    assert pods(three) == of_pods
    three.api.one.call("PATCH", f"{SET}/web", {"spec": {"replicas": REPLICAS + 3}},
                       "application/merge-patch+json")  # fmt: skip
    until("more machines run", lambda: len(three.running()) == REPLICAS + 3)
    assert Counter(three.running().values())["host2"] > Counter(before.values())["host2"]


def test_an_agent_starts_without_the_first_host(three):
    before = three.running()
    agent = three.hosts[2]
    three.first.link("down")
    try:
        agent.kill()
        agent.corral("join", "--detach", *HOLLOW)
    finally:
        three.first.link("up")
    until("all nodes are ready", lambda: three.ready(*three.hosts))
    assert three.running() == before


def test_a_partitioned_host_is_not_ready_and_comes_back(three):
    before = three.running()
    host = three.hosts[2]
    host.link("down")
    try:
        until("the node is not ready", lambda: not three.ready(host))
        node = three.nodes()["host3"]
        ready = next(each for each in node["status"]["conditions"] if each["type"] == "Ready")
        assert (ready["status"], ready["reason"]) == ("Unknown", "NodeStatusUnknown")
        assert three.ready(three.hosts[1])
        name = next(
            each["metadata"]["name"]
            for each in three.api.items("pods")
            if each["spec"]["nodeName"] == "host3"
        )
        said = three.first.kubectl("logs", name, check=False)
        assert 'the kubelet of node "host3"' in said
        assert "cannot be reached" in said
    finally:
        host.link("up")
    until("the node is ready again", lambda: three.ready(host))
    assert three.running() == before


@contextlib.contextmanager
def losing(three):
    """Let the bridge lose every twentieth packet both ways."""
    nft = ["ip", "netns", "exec", three.first.bridge, "nft"]
    subprocess.run([*nft, "-f", "-"], input=LOSS, text=True, check=True)
    yield
    listed = subprocess.run([*nft, "list", "counters"], capture_output=True, text=True, check=True)
    assert "packets 0 " not in listed.stdout, "it has lost some"
    subprocess.run([*nft, "delete", "table", "bridge", "loss"], check=True)


def test_a_host_joins_and_a_set_scales_on_a_network_that_loses_packets(three):
    three.hosts[2].corral("leave", "--grace-period", "0")
    with losing(three):
        three.join(three.hosts[2], *HOLLOW)
        until("all nodes are ready", lambda: three.ready(*three.hosts))
        three.first.kubectl("scale", "vmirs", "web", "--replicas", "0")
        until("all machines have ended", lambda: not three.api.items("pods"))
        three.first.kubectl("scale", "vmirs", "web", "--replicas", str(REPLICAS))
        until("all machines run", lambda: len(three.running()) == REPLICAS)
        pods = three.api.items("pods")
        assert {pod["spec"]["nodeName"] for pod in pods} == {"host1", "host2", "host3"}
        for pod in pods:
            three.first.kubectl("logs", pod["metadata"]["name"])
        assert three.ready(*three.hosts)
