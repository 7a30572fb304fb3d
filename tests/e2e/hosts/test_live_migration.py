"""A machine that migrates between hosts, also while parts of that die.

Its user is on the network of machines, at the first host.
"""

import json
import os
import signal
from ipaddress import ip_network
from types import SimpleNamespace

import pytest
from tests.cluster import until
from tests.e2e.hosts.test_fencing import qemus
from tests.e2e.network.ends import Pod
from tests.e2e.test_live_migration import (
    COUNT,
    PORT,
    REFERENCE,
    Stream,
    await_end,
    begin,
    ended,
    first_bytes,
    in_guest,
    is_ready,
    machine,
    migrate,
    status,
)
from tests.hosts import site

from corral.api.kinds.core.machine_nodes import LIVE_MIGRATION_LABEL
from corral.node.fencing.watchdog import process_of
from corral.node.host import process
from corral.node.network.namespaces import Namespace
from corral.node.state import machine_record as records
from corral.node.state.machine_record import Stage

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]


def user_of(made) -> SimpleNamespace:
    """Return a user on the first host."""
    return SimpleNamespace(get=made.api.get, items=made.api.items, kubectl=made.first.kubectl)


def local_machine() -> dict:
    """A machine whose disks are all its host's own, one of which the target gets as a file."""
    document = machine()
    devices, volumes = document["spec"]["domain"]["devices"], document["spec"]["volumes"]
    devices["disks"] = [each for each in devices["disks"] if each["name"] != "data"]
    volumes[:] = [each for each in volumes if each["name"] != "data"]
    return document


def neighbour(host, cidr: str) -> Pod:
    """Return a pod beside those of a host, with an address that no machine has yet."""
    holder = process.find(host.layout.network / "holder")
    assert holder is not None
    pod = Pod(200, ip_network(cidr)[200])
    with Namespace.of_process(holder.pid) as machines:
        pod.plug(SimpleNamespace(machines=machines))
    return pod


@pytest.fixture(scope="module")
def two(tmp_path_factory, demo_disk):
    """Two hosts with the machine on the second one, and a pod on the first."""
    if os.geteuid() != 0:
        pytest.skip("network namespaces of hosts need root")
    with site(tmp_path_factory.mktemp("site"), 2) as made:
        first, second = made.hosts
        first.corral("image", "import", str(demo_disk), REFERENCE)
        made.up()
        made.join(second)
        until("both nodes are ready", lambda: made.ready(*made.hosts))
        first.kubectl("cordon", "host1")
        first.kubectl("create", "-f", "-", input=json.dumps(local_machine()))
        until("the guest is ready", lambda: is_ready(user_of(made)))
        first.kubectl("uncordon", "host1")
        pod = neighbour(first, made.nodes()["host1"]["spec"]["podCIDR"])
        with pod.namespace:
            yield made, pod


def stream_to(two) -> Stream:
    """Return a stream of numbers from the guest to the pod."""
    made, pod = two
    user = user_of(made)
    in_guest(user, f"setsid sh -c '{COUNT % PORT}' > /dev/null 2>&1 < /dev/null &")
    address = status(user)["interfaces"][0]["ipAddress"]
    stream = Stream(address, lambda where: pod.connect(where, 60))
    stream.count(20)
    return stream


def test_nodes_say_that_machines_move(two):
    made, _ = two
    assert {each["metadata"]["labels"][LIVE_MIGRATION_LABEL] for each in made.nodes().values()} == {
        "1"
    }
    conditions = {each["type"]: each for each in status(user_of(made))["conditions"]}
    assert conditions["LiveMigratable"]["status"] == "True"


def test_a_machine_moves_to_another_host_and_back(two):
    made, _ = two
    user = user_of(made)
    address = status(user)["interfaces"][0]["ipAddress"]
    booted = in_guest(user, "cat /proc/sys/kernel/random/boot_id")
    in_guest(user, "echo root > /root/note; echo scratch > /dev/vdb; sync")
    stream = stream_to(two)
    for name, target in (("there", "host1"), ("back", "host2")):
        migration = migrate(user, name)
        state = migration["status"]["migrationState"]
        assert migration["status"]["phase"] == "Succeeded", status(user)["migrationState"]
        assert status(user)["nodeName"] == state["targetNode"] == target
        await_end(user, state["sourcePod"])
        until("the guest is ready", lambda: is_ready(user))
        assert status(user)["interfaces"][0]["ipAddress"] == address
        stream.count(100)
    stream.close()
    assert stream.failure is None
    assert stream.values == list(range(len(stream.values)))
    assert in_guest(user, "cat /proc/sys/kernel/random/boot_id") == booted
    assert in_guest(user, "cat /root/note").strip() == "root"
    assert first_bytes(user, "/dev/vdb").startswith("scratch")
    assert in_guest(user, "head -c 32774 /dev/vdc | tail -c 5") == "CD001"


def kill_qemu(host) -> None:
    """Kill the QEMU of the one machine of a host."""
    [machine] = qemus(host)
    os.kill(process_of(host.layout.nodes / host.name / "machines" / machine), signal.SIGKILL)


def restart_manager(made) -> None:
    made.first.kill()
    made.up()


def restart_agent(made) -> None:
    made.hosts[1].kill()
    made.join(made.hosts[1])


def cut(made) -> None:
    """Cut the second host off until its agent has given the migration up."""
    source = made.hosts[1]
    [machine] = qemus(source)
    directory = source.layout.nodes / source.name / records.MACHINES / machine
    source.link("down")
    until("the guest stays", lambda: records.read(directory).stage is Stage.STARTED, 60)
    source.link("up")


FAULTS = {
    "target's QEMU": lambda made: kill_qemu(made.first),
    "target's agent, and the API server": restart_manager,
    "source's agent": restart_agent,
    "cable": cut,
}


@pytest.fixture(scope="module")
def slow(two):
    """The two hosts, between which a migration takes some seconds, and a stream."""
    made, _ = two
    configuration = {"migrations": {"bandwidthPerMigration": "4Mi"}}
    patch = json.dumps({"spec": {"configuration": configuration}})
    words = ("kubevirt", "kubevirt", "-n", "kubevirt", "--type", "merge")
    made.first.kubectl("patch", *words, "-p", patch)
    stream = stream_to(two)
    yield made, stream
    stream.close()


@pytest.mark.parametrize("fault", FAULTS)
def test_a_machine_stays_where_it_is_if_its_migration_is_disturbed(slow, fault):
    made, stream = slow
    user = user_of(made)
    name = f"disturbed-{list(FAULTS).index(fault)}"
    begin(user, name)
    until("it is being sent", lambda: len(qemus(made.first)) == 1 and is_sending(user, name))
    FAULTS[fault](made)
    until("both nodes are ready", lambda: made.ready(*made.hosts))
    assert ended(user, name)["status"]["phase"] == "Failed"
    assert status(user)["nodeName"] == "host2"
    stream.count(50)
    assert stream.values == list(range(len(stream.values)))
    until("nothing is left of the target", lambda: not qemus(made.first))
    assert len(qemus(made.hosts[1])) == 1


def is_sending(user: SimpleNamespace, name: str) -> bool:
    state = status(user).get("migrationState", {})
    uid = user.get("vmim", name)["metadata"]["uid"]
    return state.get("migrationUid") == uid and bool(state.get("startTimestamp"))


def test_a_machine_whose_qemu_ends_while_it_migrates_has_failed(slow):
    made, _ = slow
    user = user_of(made)
    begin(user, "last")
    until("it is being sent", lambda: len(qemus(made.first)) == 1 and is_sending(user, "last"))
    kill_qemu(made.hosts[1])
    until("it has failed", lambda: status(user)["phase"] == "Failed")
    assert ended(user, "last")["status"]["phase"] == "Failed"
    until("nothing runs", lambda: not any(map(qemus, made.hosts)))
