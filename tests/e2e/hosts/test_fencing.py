"""A host that is cut off ends what must not run twice, before another host runs it."""

import os
import time

import pytest
from bench.cluster import replica_set
from tests.cluster import until
from tests.hosts import site

from corral.node.agent.self_fencing import WATCHDOG
from corral.node.fencing.watchdog import RENEWED, now, process_of
from corral.node.host.proc import runs

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

REFERENCE = "kubevirt/cirros-container-disk-demo:latest"
SETS = "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstancereplicasets"
POOLS = "/apis/pool.kubevirt.io/v1beta1/namespaces/default/virtualmachinepools"
LABELS = {"pool": "db"}


def pool():
    """A pool of one member, which is replaced as soon as that is safe."""
    template = replica_set("db", 1)["spec"]["template"]
    template["metadata"]["labels"] = LABELS
    template["spec"]["tolerations"] = [
        {"key": f"node.kubernetes.io/{key}", "operator": "Exists", "effect": "NoExecute",
         "tolerationSeconds": 0}
        for key in ("unreachable", "not-ready")
    ]  # fmt: skip
    return {
        "apiVersion": "pool.kubevirt.io/v1beta1",
        "kind": "VirtualMachinePool",
        "metadata": {"name": "db"},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": LABELS},
            "virtualMachineTemplate": {
                "metadata": {"labels": LABELS},
                "spec": {"runStrategy": "Always", "template": template},
            },
        },
    }


@pytest.fixture(scope="module")
def two(tmp_path_factory, demo_disk):
    """Two hosts; on the second a member of a pool and one of a replica set."""
    if os.geteuid() != 0:
        pytest.skip("network namespaces of hosts need root")
    with site(tmp_path_factory.mktemp("site"), 2) as made:
        for host in made.hosts:
            host.corral("image", "import", str(demo_disk), REFERENCE)
        made.up()
        made.join(made.hosts[1])
        until("both nodes are ready", lambda: made.ready(*made.hosts))
        made.first.kubectl("cordon", "host1")
        made.api.one.call("POST", SETS, replica_set("web", 1))
        made.api.one.call("POST", POOLS, pool())
        until(
            "both run",
            lambda: list(made.running().values()) == ["host2", "host2"],
        )
        made.first.kubectl("uncordon", "host1")
        yield made


def uid_of(made, prefix):
    """The uid of the VMI whose name begins so; empty while there is none."""
    found = (each["metadata"] for each in made.api.items("vmi"))
    return next((each["uid"] for each in found if each["name"].startswith(prefix)), "")


def has_qemu(host, uid):
    directory = host.layout.nodes / host.name / "machines" / uid
    return directory.is_dir() and runs(directory)


def qemus(host, *but):
    """The machines of a host that have a QEMU, without some."""
    machines = (host.layout.nodes / host.name / "machines").glob("*")
    return {each.name for each in machines if runs(each)} - set(but)


def watch_replacement(made, member, web):
    """Return when the member ended on the second host, and when the first one had another."""
    first, second = made.hosts
    here, ended, begun = qemus(first), None, None
    cut = time.monotonic()
    while begun is None:
        now = time.monotonic() - cut
        assert now < 120, f"not replaced; ended after {ended} s"
        if qemus(first, *here):
            begun = now
        if ended is None and not has_qemu(second, member):
            ended = now
        assert has_qemu(second, web)
        time.sleep(0.02)
    return ended, begun


def test_a_member_of_a_pool_ends_before_it_is_replaced(two):
    second = two.hosts[1]
    member, web = uid_of(two, "db"), uid_of(two, "web")
    second.link("down")
    try:
        ended, begun = watch_replacement(two, member, web)
    finally:
        second.link("up")
    assert 29 < ended < 47
    assert ended < begun < 75
    until("the host is back", lambda: two.ready(second))
    until(
        "the member runs on the other host", lambda: two.running().get(uid_of(two, "db")) == "host1"
    )
    assert uid_of(two, "web") == web
    assert has_qemu(second, web)
    assert not has_qemu(second, member)


def move_member(made):
    """Let another member of the pool run, on the second host."""
    before = uid_of(made, "db")
    made.first.kubectl("cordon", "host1")
    names = made.first.kubectl("get", "vmi", "-o", "name").split()
    made.first.kubectl("delete", next(n for n in names if "/db-" in n), "--wait=false")
    until(
        "another runs",
        lambda: uid_of(made, "db") != before and made.running().get(uid_of(made, "db")) == "host2",
    )
    made.first.kubectl("uncordon", "host1")


def test_the_watchdog_ends_it_where_the_agent_is_dead(two):
    second = two.hosts[1]
    move_member(two)
    member, web = uid_of(two, "db"), uid_of(two, "web")
    second.kill()
    second.link("down")
    try:
        ended, begun = watch_replacement(two, member, web)
    finally:
        second.link("up")
    assert 29 < ended < 45
    assert ended < begun < 75
    second.corral("join", "--detach")
    until("the host is back", lambda: two.ready(second))
    until(
        "the member runs on the other host", lambda: two.running().get(uid_of(two, "db")) == "host1"
    )
    assert has_qemu(second, web)
    assert not has_qemu(second, member)


def test_an_agent_that_is_stopped_leaves_its_machines_alone(two):
    second = two.hosts[1]
    move_member(two)
    member, web = uid_of(two, "db"), uid_of(two, "web")
    node = second.layout.nodes / "host2"
    assert runs(node / WATCHDOG)
    before = process_of(node / "machines" / member)
    assert before is not None
    second.corral("stop")
    assert not runs(node / WATCHDOG)
    said = self_fencing(two)
    assert (said["status"], said["reason"]) == ("False", "AgentStopped")
    assert has_qemu(second, web)
    age(node, 60)
    second.corral("join", "--detach")
    until("the host is back", lambda: two.ready(second))
    until("it fences itself again", lambda: self_fencing(two)["status"] == "True")
    assert runs(node / WATCHDOG)
    assert process_of(node / "machines" / member) == before
    assert uid_of(two, "db") == member
    assert has_qemu(second, web)


def self_fencing(made):
    """The condition of the second host."""
    conditions = made.nodes()["host2"]["status"]["conditions"]
    return {each["type"]: each for each in conditions}["SelfFencing"]


def age(node, seconds):
    """Let the last renewal of a node's Lease be that old."""
    moment = now() - seconds
    os.utime(node / RENEWED, (moment, moment))
