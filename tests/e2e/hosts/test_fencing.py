"""Hosts that go silent: machines go on elsewhere with their shared disks, never on two hosts.

Four hosts go silent at once, each in a way of its own, as each silence takes a minute.  Their
clocks are minutes apart, on which nothing of that depends.
"""

import contextlib
import json
import os
import signal
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from bench.cluster import replica_set
from tests.cluster import until
from tests.hosts import Host, Site, site

from corral.api.kinds.storage.common import SHARED_CLASS, SHARED_LABEL
from corral.node.agent.self_fencing import WATCHDOG
from corral.node.fencing.watchdog import RENEWED, now, process_of
from corral.node.host.proc import LOCK, lock_holder, runs

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

REFERENCE = "kubevirt/cirros-container-disk-demo:latest"
SETS = "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstancereplicasets"
POOLS = "/apis/pool.kubevirt.io/v1beta1/namespaces/default/virtualmachinepools"
LABELS = {"pool": "db"}
CUT_OFF, WITHOUT_AGENT, DELETED, DEAD = "host2", "host3", "host4", "host5"
"""The host with a broken cable; those whose agent is dead as well, whose Node is deleted as well,
and on which nothing runs any more."""
SILENT = {CUT_OFF, WITHOUT_AGENT, DELETED, DEAD}
CLOCKS = {CUT_OFF: 280, WITHOUT_AGENT: -280, DELETED: -280, DEAD: 280}
"""Seconds by which the hosts' clocks are off: a host that is five minutes off does not join."""
EARLIEST_SECONDS = 20
"""A member ends 40 s after the last renewal of a Lease: one each 10 s, later on a busy host."""


def pool() -> dict:
    """A pool whose members have a shared disk each, and are replaced as soon as that is safe."""
    template = replica_set("db", 1)["spec"]["template"]
    template["metadata"]["labels"] = LABELS
    spec = template["spec"]
    spec["tolerations"] = [
        {"key": f"node.kubernetes.io/{key}", "operator": "Exists", "effect": "NoExecute",
         "tolerationSeconds": 0}
        for key in ("unreachable", "not-ready")
    ]  # fmt: skip
    spec["terminationGracePeriodSeconds"] = 0
    spec["domain"]["devices"]["rng"] = {}
    spec["domain"]["devices"]["disks"].append({"name": "data", "disk": {"bus": "virtio"}})
    spec["volumes"].append({"name": "data", "dataVolume": {"name": "data"}})
    storage = {
        "storageClassName": SHARED_CLASS,
        "accessModes": ["ReadWriteMany"],
        "resources": {"requests": {"storage": "64Mi"}},
    }
    data = {"metadata": {"name": "data"}, "spec": {"source": {"blank": {}}, "storage": storage}}
    return {
        "apiVersion": "pool.kubevirt.io/v1beta1",
        "kind": "VirtualMachinePool",
        "metadata": {"name": "db"},
        "spec": {
            "replicas": len(SILENT),
            "selector": {"matchLabels": LABELS},
            "virtualMachineTemplate": {
                "metadata": {"labels": LABELS},
                "spec": {
                    "runStrategy": "Always",
                    "dataVolumeTemplates": [data],
                    "template": template,
                },
            },
        },
    }


@contextlib.contextmanager
def mounted(shared: Path, host: Host):
    """Mount the shared directory on a host, where that host has it."""
    there = mount_of(host)
    there.mkdir(mode=0o700)
    subprocess.run(["mount", "--bind", shared, there], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", there], check=True)


def mount_of(host: Host) -> Path:
    return host.directory / "mnt"


def options(host: Host) -> tuple[str, ...]:
    return "--shared-storage", str(mount_of(host))


@pytest.fixture(scope="module")
def five(tmp_path_factory, demo_disk):
    """Five hosts with the directory; a member of the pool on each but the first one."""
    if os.geteuid() != 0:
        pytest.skip("network namespaces of hosts need root")
    shared = tmp_path_factory.mktemp("shared")
    shared.chmod(0o700)
    with site(tmp_path_factory.mktemp("site"), 5) as made, contextlib.ExitStack() as stack:
        for host in made.hosts:
            stack.enter_context(mounted(shared, host))
        made.first.corral("image", "import", str(demo_disk), REFERENCE)
        made.up(*options(made.first))
        for host in made.hosts[1:]:
            host.set_clock(CLOCKS[host.name])
            made.join(host, *options(host))
        until("all nodes are ready", lambda: made.ready(*made.hosts))
        until("the class is there", lambda: SHARED_CLASS in made.first.kubectl("get", "sc"))
        made.first.kubectl("cordon", "host1")
        made.api.one.call("POST", POOLS, pool())
        until("each has a member", lambda: set(members(made).values()) == SILENT)
        until("their agents answer", lambda: agents(made) == len(SILENT))
        for name in members(made):
            guest(made, name, f"echo kept-by-{name} > /dev/vdb; sync")
        yield made


def vmis(made: Site) -> list[dict]:
    return made.api.items("vmi", "-l", "pool=db")


def members(made: Site) -> dict[str, str]:
    """Return the nodes of the members that run, by name."""
    found = vmis(made)
    return {
        each["metadata"]["name"]: each["status"]["nodeName"]
        for each in found
        if each.get("status", {}).get("phase") == "Running"
    }


def uids(made: Site) -> dict[str, str]:
    """Return the uids of all members by name."""
    return {each["metadata"]["name"]: each["metadata"]["uid"] for each in vmis(made)}


def agents(made: Site) -> int:
    """Return the number of members whose agent answers."""
    return sum(
        (one["type"], one["status"]) == ("AgentConnected", "True")
        for each in vmis(made)
        for one in each.get("status", {}).get("conditions", ())
    )


def guest(made: Site, name: str, script: str) -> str:
    """Run a script in a member; return what it printed."""
    (pod,) = [
        each["metadata"]["name"]
        for each in made.api.items("pods", "-l", f"vm.kubevirt.io/name={name}")
        if each["status"].get("phase") == "Running"
    ]
    return made.first.kubectl("exec", pod, "--", "sh", "-c", script)


def directory_of(host: Host) -> Path:
    return host.layout.nodes / host.name


def has_qemu(host: Host, uid: str) -> bool:
    directory = directory_of(host) / "machines" / uid
    return directory.is_dir() and runs(directory)


def qemus(host: Host, *but: str) -> set[str]:
    """Return the uids of the machines of a host that have a QEMU, without some."""
    machines = (directory_of(host) / "machines").glob("*")
    return {each.name for each in machines if runs(each)} - set(but)


def host_of(made: Site, name: str) -> Host:
    return next(each for each in made.hosts if each.name == name)


def instance(host: Host, uid: str) -> str:
    """Return the name of a VMI from the record of its machine."""
    record = (directory_of(host) / "machines" / uid / "machine.json").read_text()
    return json.loads(record.splitlines()[-1])["instance"]


def test_nodes_with_the_directory_have_the_same_label_and_condition(five):
    nodes = five.nodes()
    labels = {each["metadata"]["labels"].get(SHARED_LABEL) for each in nodes.values()}
    assert len(labels) == 1
    assert None not in labels
    for node in nodes.values():
        conditions = {each["type"]: each for each in node["status"]["conditions"]}
        assert conditions["SharedStorage"]["status"] == "True"
    capacities = five.first.kubectl("get", "csistoragecapacities", "-A", "-o", "wide")
    assert SHARED_CLASS in capacities


def test_a_claim_grows_in_the_machine_of_a_joined_host(five):
    (name,) = [name for name, node in members(five).items() if node == CUT_OFF]
    (vmi,) = [each for each in vmis(five) if each["metadata"]["name"] == name]
    claim = next(
        each["dataVolume"]["name"] for each in vmi["spec"]["volumes"] if "dataVolume" in each
    )
    larger = '{"spec": {"resources": {"requests": {"storage": "96Mi"}}}}'
    five.first.kubectl("patch", "pvc", claim, "-p", larger)
    capacity = lambda: five.api.get("pvc", claim)["status"]["capacity"]["storage"]  # noqa: E731
    until("the claim has grown", lambda: capacity() == "96Mi")
    assert int(guest(five, name, "cat /sys/block/vdb/size")) * 512 == 96 << 20
    assert guest(five, name, f"head -c {len('kept')} /dev/vdb") == "kept"


@dataclass
class Silence:
    """When, in seconds after the hosts went silent, members ended, and others began, by host."""

    before: dict[str, str]
    """The members by the host that they were on."""
    uids: dict[str, str]
    """The uids that they had."""
    web: str
    """The uid of a VMI of a replica set on the host that is cut off."""
    ended: dict[str, float] = field(default_factory=dict)
    begun: dict[str, float] = field(default_factory=dict)

    def watch(self, made: Site) -> None:
        """Watch until the first host has all members, of which none must run twice at any time."""
        hosts = {name: host_of(made, name) for name in SILENT}
        here: dict[str, str] = {}
        began = time.monotonic()
        while len(self.begun) < len(SILENT):
            running = qemus(made.first)
            passed = time.monotonic() - began
            here |= {uid: instance(made.first, uid) for uid in running - here.keys()}
            names = {here[uid] for uid in running}
            for where, host in hosts.items():
                name = self.before[where]
                if has_qemu(host, self.uids[name]):
                    assert name not in names, f"{name} runs twice after {passed} s"
                else:
                    self.ended.setdefault(where, passed)
                if name in names:
                    self.begun.setdefault(where, passed)
            assert has_qemu(hosts[CUT_OFF], self.web), "the machine of a set may run twice"
            assert passed < 240, f"ended: {self.ended}; replaced: {self.begun}"
            time.sleep(0.02)


@pytest.fixture(scope="module")
def silence(five):
    """What happened while four hosts were silent, until all members ran on the first one."""
    document = replica_set("web", 1)
    document["spec"]["template"]["spec"]["nodeSelector"] = {"kubernetes.io/hostname": CUT_OFF}
    five.api.one.call("POST", SETS, document)
    uid = lambda: next(iter(five.running().keys() - uids(five).values()), "")  # noqa: E731
    until("the machine of the set runs", uid)
    five.first.kubectl("uncordon", "host1")
    before = {node: name for name, node in members(five).items()}
    saw = Silence(before, uids(five), uid())
    dead = host_of(five, DEAD)
    qemu = process_of(directory_of(dead) / "machines" / saw.uids[before[DEAD]])
    watchdog = lock_holder(directory_of(dead) / WATCHDOG / LOCK)
    for name in (WITHOUT_AGENT, DEAD):
        host_of(five, name).kill()
    for each in (watchdog, qemu):
        os.kill(each, signal.SIGKILL)
    for name in SILENT:
        host_of(five, name).link("down")
    five.first.kubectl("delete", "node", DELETED)
    saw.watch(five)
    return saw


@pytest.mark.parametrize("where", [CUT_OFF, WITHOUT_AGENT, DELETED])
def test_a_member_of_a_silent_host_ends_before_it_is_replaced(silence, where):
    assert EARLIEST_SECONDS < silence.ended[where] < silence.begun[where]


def test_a_member_of_a_dead_host_is_replaced_once_the_host_has_been_silent(silence):
    """Nothing on the host releases the lease of its disk."""
    assert silence.ended[DEAD] < EARLIEST_SECONDS < silence.begun[DEAD]


def test_hosts_come_back_without_their_members(five, silence):
    for name in SILENT:
        host_of(five, name).link("up")
    for name in (WITHOUT_AGENT, DEAD):
        host = host_of(five, name)
        host.corral("join", "--detach", *options(host))
    until("all nodes are ready", lambda: five.ready(*five.hosts))
    assert {name: qemus(host_of(five, name)) for name in SILENT} == {
        CUT_OFF: {silence.web}, WITHOUT_AGENT: set(), DELETED: set(), DEAD: set(),
    }  # fmt: skip


def test_members_go_on_with_their_disks(five, silence):
    until("all run on the first host", lambda: set(members(five).values()) == {"host1"})
    until("their agents answer", lambda: agents(five) == len(SILENT))
    for name in members(five):
        text = f"kept-by-{name}"
        assert guest(five, name, f"head -c {len(text)} /dev/vdb") == text


def test_an_agent_that_is_stopped_leaves_its_machines_alone(five, silence):
    name, host = min(members(five)), host_of(five, CUT_OFF)
    others = [each.name for each in five.hosts if each != host]
    five.first.kubectl("cordon", *others)
    five.first.kubectl("delete", "vmi", name, "--wait=false")
    until("it runs there", lambda: members(five).get(name) == host.name)
    five.first.kubectl("uncordon", *others)
    member = uids(five)[name]
    directory = directory_of(host)
    assert runs(directory / WATCHDOG)
    before = process_of(directory / "machines" / member)
    assert before is not None
    host.corral("stop")
    assert not runs(directory / WATCHDOG)
    said = self_fencing(five, host)
    assert (said["status"], said["reason"]) == ("False", "AgentStopped")
    assert has_qemu(host, silence.web)
    moment = now() - 60
    os.utime(directory / RENEWED, (moment, moment))
    host.corral("join", "--detach", *options(host))
    until("the host is back", lambda: five.ready(host))
    until("it fences itself again", lambda: self_fencing(five, host)["status"] == "True")
    assert runs(directory / WATCHDOG)
    assert process_of(directory / "machines" / member) == before
    assert uids(five)[name] == member
    assert has_qemu(host, silence.web)


def self_fencing(made: Site, host: Host) -> dict:
    conditions = made.nodes()[host.name]["status"]["conditions"]
    return {each["type"]: each for each in conditions}["SelfFencing"]


def test_a_host_with_another_directory_is_refused(five, tmp_path):
    host = host_of(five, DEAD)
    host.corral("stop")
    tmp_path.chmod(0o700)
    said = host.corral("join", "--detach", "--shared-storage", str(tmp_path), check=False)
    assert "marker is missing" in said
