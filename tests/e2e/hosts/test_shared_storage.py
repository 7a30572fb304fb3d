"""A directory that two hosts mount: a machine goes on elsewhere with its disk, never on both."""

import contextlib
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from tests.cluster import until
from tests.e2e.hosts.test_fencing import POOLS, REFERENCE, pool, qemus, uid_of
from tests.hosts import site

from corral.api.kinds.storage.common import SHARED_CLASS, SHARED_LABEL
from corral.node.agent.self_fencing import WATCHDOG
from corral.node.fencing.watchdog import process_of
from corral.node.host.proc import LOCK, lock_holder

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

CLAIM = f"""
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {{name: data}}
spec:
  storageClassName: {SHARED_CLASS}
  accessModes: [ReadWriteMany]
  resources: {{requests: {{storage: 64Mi}}}}
"""


@contextlib.contextmanager
def mounted(shared: Path, host):
    """Mount the shared directory on a host, where that host has it."""
    there = host.directory / "mnt"
    there.mkdir(mode=0o700)
    subprocess.run(["mount", "--bind", shared, there], check=True)
    try:
        yield there
    finally:
        subprocess.run(["umount", "--lazy", there], check=True)


def member_with_claim() -> dict:
    """A pool of one member with the claim, which is replaced as soon as that is safe."""
    document = pool()
    spec = document["spec"]["virtualMachineTemplate"]["spec"]["template"]["spec"]
    spec["domain"]["devices"]["disks"].append({"name": "data", "disk": {"bus": "virtio"}})
    spec["domain"]["devices"]["rng"] = {}
    spec["volumes"].append({"name": "data", "persistentVolumeClaim": {"claimName": "data"}})
    spec["terminationGracePeriodSeconds"] = 0
    return document


@pytest.fixture(scope="module")
def two(tmp_path_factory, demo_disk):
    """Two hosts with the directory; the member of a pool runs on the second, with its claim."""
    if os.geteuid() != 0:
        pytest.skip("network namespaces of hosts need root")
    shared = tmp_path_factory.mktemp("shared")
    shared.chmod(0o700)
    with site(tmp_path_factory.mktemp("site"), 2) as made, contextlib.ExitStack() as stack:
        first, second = made.hosts
        directories = [stack.enter_context(mounted(shared, host)) for host in made.hosts]
        for host in made.hosts:
            host.corral("image", "import", str(demo_disk), REFERENCE)
        made.up("--shared-storage", str(directories[0]))
        made.join(second, "--shared-storage", str(directories[1]))
        until("both nodes are ready", lambda: made.ready(*made.hosts))
        until("the class is there", lambda: SHARED_CLASS in made.first.kubectl("get", "sc"))
        made.first.kubectl("create", "-f", "-", input=CLAIM)
        made.first.kubectl("cordon", "host1")
        made.api.one.call("POST", POOLS, member_with_claim())
        until("it runs", lambda: list(made.running().values()) == ["host2"])
        first.kubectl("uncordon", "host1")
        until("its agent answers", lambda: agent_answers(made))
        guest(made, "echo kept > /dev/vdb; sync")
        yield made
        first.kubectl("delete", "vmpool", "db", check=False)


def guest(made, script: str) -> str:
    """Run a script in the member; answers what it printed."""
    pods = made.api.items("pods", "-l", "kubevirt.io=virt-launcher")
    name = next(
        each["metadata"]["name"] for each in pods if each["status"].get("phase") == "Running"
    )
    return made.first.kubectl("exec", name, "--", "sh", "-c", script)


def agent_answers(made) -> bool:
    conditions = made.api.items("vmi")[0].get("status", {}).get("conditions", [])
    return any(one["type"] == "AgentConnected" and one["status"] == "True" for one in conditions)


def test_nodes_with_the_directory_have_the_same_label_and_condition(two):
    nodes = two.nodes()
    labels = {each["metadata"]["labels"].get(SHARED_LABEL) for each in nodes.values()}
    assert len(labels) == 1
    assert None not in labels
    for node in nodes.values():
        conditions = {each["type"]: each for each in node["status"]["conditions"]}
        assert conditions["SharedStorage"]["status"] == "True"
    capacities = two.first.kubectl("get", "csistoragecapacities", "-A", "-o", "wide")
    assert SHARED_CLASS in capacities


def test_a_claim_grows_in_the_machine_of_a_joined_host(two):
    larger = '{"spec": {"resources": {"requests": {"storage": "96Mi"}}}}'
    two.first.kubectl("patch", "pvc", "data", "-p", larger)

    def has_grown():
        shown = two.first.kubectl("get", "pvc", "data", "-o", "jsonpath={.status.capacity.storage}")
        return shown == "96Mi"

    until("the claim has grown", has_grown)
    assert int(guest(two, "cat /sys/block/vdb/size")) * 512 == 96 << 20
    assert guest(two, "head -c 4 /dev/vdb") == "kept"


def watch(made, seconds: float) -> tuple[float, float]:
    """Return when the second host's machine ended, and when the first had one; never both."""
    first, second = made.hosts
    ended = None
    cut = time.monotonic()
    while True:
        here, there = qemus(first), qemus(second)
        now = time.monotonic() - cut
        assert not (here and there), f"two machines after {now} s"
        assert now < seconds, f"not replaced; ended after {ended} s"
        if ended is None and not there:
            ended = now
        if here and ended is not None:
            return ended, now
        time.sleep(0.02)


def runs_on_first_with_data(made) -> None:
    until("it runs on the first host", lambda: list(made.running().values()) == ["host1"])
    until("its agent answers", lambda: agent_answers(made))
    assert guest(made, "head -c 4 /dev/vdb") == "kept"


def back_to_second(made) -> None:
    """Let the member run on the second host again."""
    before = uid_of(made, "db")
    until("both nodes are ready", lambda: made.ready(*made.hosts))
    made.first.kubectl("cordon", "host1")
    made.first.kubectl("delete", "vmi", "--all", "--wait=false")
    until(
        "it runs on the second host",
        lambda: uid_of(made, "db") != before and list(made.running().values()) == ["host2"],
    )
    made.first.kubectl("uncordon", "host1")


def test_a_member_goes_on_with_its_disk_when_its_host_is_cut_off(two):
    second = two.hosts[1]
    second.link("down")
    try:
        ended, begun = watch(two, 150)
        assert 29 < ended < 47
        assert begun < 80
        runs_on_first_with_data(two)
    finally:
        second.link("up")


def test_deleting_the_node_of_a_host_that_still_runs_gives_its_disk_to_nobody_else(two):
    second = two.hosts[1]
    back_to_second(two)
    second.link("down")
    two.first.kubectl("delete", "node", "host2")
    try:
        ended, _ = watch(two, 150)
        assert ended > 20
        runs_on_first_with_data(two)
    finally:
        second.link("up")


def test_a_member_goes_on_with_its_disk_when_its_host_dies(two):
    """Nothing on the host releases the lease: it passes on once the host has been silent."""
    second = two.hosts[1]
    back_to_second(two)
    node = second.layout.nodes / "host2"
    qemu = process_of(node / "machines" / uid_of(two, "db"))
    watchdog = lock_holder(node / WATCHDOG / LOCK)
    second.kill()
    for each in (watchdog, qemu):
        os.kill(each, signal.SIGKILL)
    second.link("down")
    try:
        _, begun = watch(two, 240)
        assert begun > 40
        runs_on_first_with_data(two)
    finally:
        second.link("up")
    second.corral("join", "--detach", "--shared-storage", str(second.directory / "mnt"))
    until("the host is back", lambda: two.ready(second))
    assert not qemus(second)


def test_a_host_with_another_directory_is_refused(two, tmp_path):
    second = two.hosts[1]
    second.corral("stop")
    tmp_path.chmod(0o700)
    said = second.corral("join", "--detach", "--shared-storage", str(tmp_path), check=False)
    assert "marker is missing" in said
    second.corral("join", "--detach", "--shared-storage", str(second.directory / "mnt"))
