"""Machines that migrate between hosts, there and back."""

import json
import os
from types import SimpleNamespace

import pytest
from tests.cluster import until
from tests.e2e.test_live_migration import (
    COUNT,
    PORT,
    REFERENCE,
    Stream,
    await_end,
    first_bytes,
    in_guest,
    is_ready,
    machine,
    migrate,
    status,
)
from tests.hosts import HOLLOW, site

from corral.api.kinds.core.machine_nodes import LIVE_MIGRATION_LABEL

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


@pytest.fixture(scope="module", params=[HOLLOW], ids=["hollow"])
def two(request, tmp_path_factory, demo_disk):
    """Two hosts, with the machine on the second one."""
    if os.geteuid() != 0:
        pytest.skip("network namespaces of hosts need root")
    with site(tmp_path_factory.mktemp("site"), 2) as made:
        first, second = made.hosts
        first.corral("image", "import", str(demo_disk), REFERENCE)
        made.up(*request.param)
        made.join(second, *request.param)
        until("both nodes are ready", lambda: made.ready(*made.hosts))
        first.kubectl("cordon", "host1")
        first.kubectl("create", "-f", "-", input=json.dumps(local_machine()))
        until("the guest is ready", lambda: is_ready(user_of(made)))
        first.kubectl("uncordon", "host1")
        yield made, bool(request.param)


def test_nodes_say_that_machines_move(two):
    made, _ = two
    assert {each["metadata"]["labels"][LIVE_MIGRATION_LABEL] for each in made.nodes().values()} == {
        "1"
    }
    conditions = {each["type"]: each for each in status(user_of(made))["conditions"]}
    assert conditions["LiveMigratable"]["status"] == "True"


def test_a_machine_moves_to_another_host_and_back(two):
    made, is_hollow = two
    user = user_of(made)
    before = status(user)
    address = before["interfaces"][0]["ipAddress"]
    stream = None
    if not is_hollow:
        booted = in_guest(user, "cat /proc/sys/kernel/random/boot_id")
        in_guest(user, "echo root > /root/note; echo scratch > /dev/vdb; sync")
        in_guest(user, f"setsid sh -c '{COUNT % PORT}' > /dev/null 2>&1 < /dev/null &")
        stream = Stream(address, lambda where: made.first.connect(where, PORT))
        stream.count(20)
    for name, target in (("there", "host1"), ("back", "host2")):
        migration = migrate(user, name)
        state = migration["status"]["migrationState"]
        assert migration["status"]["phase"] == "Succeeded", status(user)["migrationState"]
        assert status(user)["nodeName"] == state["targetNode"] == target
        await_end(user, state["sourcePod"])
        until("the guest is ready", lambda: is_ready(user))
        assert status(user)["interfaces"][0]["ipAddress"] == address
        if stream is not None:
            stream.count(100)
    if stream is not None:
        stream.close()
        assert stream.failure is None
        assert stream.values == list(range(len(stream.values)))
        assert in_guest(user, "cat /proc/sys/kernel/random/boot_id") == booted
        assert in_guest(user, "cat /root/note").strip() == "root"
        assert first_bytes(user, "/dev/vdb").startswith("scratch")
        assert in_guest(user, "head -c 32774 /dev/vdc | tail -c 5") == "CD001"
