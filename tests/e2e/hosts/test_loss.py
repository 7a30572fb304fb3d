"""A network between hosts that loses every twentieth packet."""

import subprocess

import pytest
from bench.cluster import replica_set
from tests.cluster import until
from tests.hosts import HOLLOW

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

SET = "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstancereplicasets"
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
def lossy(hollow):
    """Two nodes, and a host to join, on a bridge that loses packets both ways."""
    nft = ["ip", "netns", "exec", hollow.first.bridge, "nft"]
    subprocess.run([*nft, "-f", "-"], input=LOSS, text=True, check=True)
    yield hollow
    listed = subprocess.run([*nft, "list", "counters"], capture_output=True, text=True, check=True)
    assert "packets 0 " not in listed.stdout, "it has lost some"


def ready_replicas(site):
    return site.api.get("vmirs", "web").get("status", {}).get("readyReplicas", 0)


def test_a_host_joins_sets_scale_and_nodes_are_asked(lossy):
    lossy.join(lossy.hosts[2], *HOLLOW)
    until("all nodes are ready", lambda: lossy.ready(*lossy.hosts))
    lossy.api.one.call("POST", SET, replica_set("web", 3))
    until("the set is ready", lambda: ready_replicas(lossy) == 3)
    lossy.first.kubectl("scale", "vmirs", "web", "--replicas", "9")
    until("the set has grown", lambda: ready_replicas(lossy) == 9)
    pods = lossy.api.items("pods")
    assert {pod["spec"]["nodeName"] for pod in pods} == {"host1", "host2", "host3"}
    for pod in pods:
        lossy.first.kubectl("logs", pod["metadata"]["name"])
    lossy.first.kubectl("scale", "vmirs", "web", "--replicas", "0")
    until("all machines have ended", lambda: not lossy.api.items("pods"))
    assert lossy.ready(*lossy.hosts)
