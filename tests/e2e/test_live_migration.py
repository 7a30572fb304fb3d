"""A machine that migrates, as its user sees it: its address, connections, memory and disks stay."""

import asyncio
import json
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import pytest
from tests.cluster import Outside, outside, ranges, until
from tests.console import console

from corral.api.kinds.storage.common import SHARED_CLASS

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1800)]

REFERENCE = "kubevirt/cirros-container-disk-demo:latest"
PORT = 5000
COUNT = "(i=0; while :; do echo $i; i=$((i+1)); usleep 20000; done) | nc -l -p %d"
"""A counter in the guest's memory, each value of which is sent once."""

CLAIM = {
    "apiVersion": "v1",
    "kind": "PersistentVolumeClaim",
    "metadata": {"name": "data"},
    "spec": {
        "storageClassName": SHARED_CLASS,
        "accessModes": ["ReadWriteMany"],
        "resources": {"requests": {"storage": "64Mi"}},
    },
}


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """A directory that several hosts could mount."""
    return tmp_path_factory.mktemp("shared")


@pytest.fixture(scope="module")
def user(demo_disk, tmp_path_factory, shared):
    directory = tmp_path_factory.mktemp("corral")
    options = ("--nodes", "2", "--shared-storage", str(shared))
    with outside(*options, *ranges(__file__), directory=directory) as user:
        user.corral("image", "import", str(demo_disk), REFERENCE)
        user.kubectl("create", "-f", "-", input=json.dumps(CLAIM))
        user.kubectl("create", "-f", "-", input=json.dumps(machine()))
        until("the guest is ready", lambda: is_ready(user))
        yield user


def machine() -> dict:
    disks = ("root", "scratch", "data", "seed")
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstance",
        "metadata": {"name": "vm"},
        "spec": {
            "domain": {
                "memory": {"guest": "128Mi"},
                "devices": {
                    "rng": {},
                    "interfaces": [{"name": "default", "masquerade": {}}],
                    "disks": [{"name": name, "disk": {"bus": "virtio"}} for name in disks],
                },
            },
            "networks": [{"name": "default", "pod": {}}],
            "volumes": [
                {"name": "root", "containerDisk": {"image": REFERENCE}},
                {"name": "scratch", "emptyDisk": {"capacity": "64Mi"}},
                {"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
                {"name": "seed", "cloudInitNoCloud": {"userData": "#cloud-config\n"}},
            ],
        },
    }


def status(user: Outside) -> dict:
    return user.get("vmi", "vm").get("status", {})


def is_ready(user: Outside) -> bool:
    return {"Ready", "AgentConnected"} <= {
        one["type"] for one in status(user).get("conditions", []) if one["status"] == "True"
    }


def in_guest(user: Outside, command: str) -> str:
    """Run a command in the guest, by the pod that is on its node."""
    node = status(user)["nodeName"]
    [pod] = [
        each
        for each in user.items("pod")
        if (each["spec"]["nodeName"], each["status"]["phase"]) == (node, "Running")
    ]
    return user.kubectl("exec", pod["metadata"]["name"], "--", "sh", "-c", command)


def begin(user: Outside, name: str) -> None:
    """Create a migration of the machine."""
    migration = {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstanceMigration",
        "metadata": {"name": name},
        "spec": {"vmiName": "vm"},
    }
    user.kubectl("create", "-f", "-", input=json.dumps(migration))


def ended(user: Outside, name: str) -> dict:
    """Return a migration once it is over."""

    def is_over() -> bool:
        found = user.get("vmim", name).get("status", {})
        return found.get("phase") in {"Succeeded", "Failed"}

    until("the migration is over", is_over)
    return user.get("vmim", name)


def migrate(user: Outside, name: str) -> dict:
    """Migrate the machine; return the migration once it is over."""
    begin(user, name)
    return ended(user, name)


def to_counter(address: str) -> socket.socket:
    """Connect to the guest's counter from this host."""
    return socket.create_connection((address, PORT), timeout=60)


def connected(address: str, connect: Callable[[str], socket.socket]) -> socket.socket:
    """Connect to the guest's counter, which may not listen yet."""
    found: list[socket.socket] = []

    def answers() -> bool:
        with suppress(ConnectionRefusedError):
            found.append(connect(address))
        return bool(found)

    until("the counter listens", answers)
    return found[0]


class Stream:
    """A TCP connection to the guest's counter, which is read all the time."""

    def __init__(self, address: str, connect: Callable[[str], socket.socket] = to_counter) -> None:
        self._connection = connected(address, connect)
        self.values: list[int] = []
        self.times: list[float] = []
        """When each value came: seconds of the monotonic clock."""
        self.failure: Exception | None = None
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        try:
            with self._connection.makefile() as lines:
                for line in lines:
                    self.times.append(time.monotonic())
                    self.values.append(int(line))
        except (OSError, ValueError) as error:
            self.failure = error

    def longest_gap(self, first: int) -> float:
        """Return the longest time between two values, in seconds, from the one before ``first``."""
        times = self.times[max(0, first - 1) :]
        return max((after - before for before, after in pairwise(times)), default=0.0)

    def count(self, more: int) -> None:
        """Wait for more values."""
        desired = len(self.values) + more
        until(
            "the connection goes on",
            lambda: len(self.values) >= desired or not self._thread.is_alive(),
        )
        assert len(self.values) >= desired, f"the connection has ended: {self.failure!r}"

    def close(self) -> None:
        with suppress(OSError):  # it has failed
            self._connection.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._connection.close()


def first_bytes(user: Outside, device: str) -> str:
    """Return the first bytes on a disk, past the guest's cache."""
    return in_guest(user, f"dd if={device} bs=512 count=1 iflag=direct 2>/dev/null")


def await_end(user: Outside, pod: str) -> None:
    until("the source has ended", lambda: user.get("pod", pod)["status"]["phase"] == "Succeeded")


def is_leased(shared: Path, user: Outside) -> bool:
    """Report whether the machine has the lease of its disk on the shared directory."""
    uid = user.get("vmi", "vm")["metadata"]["uid"]
    return any(each.name.endswith(f".{uid}") for each in shared.glob("leases/*/*.held.*"))


def test_a_machine_keeps_its_address_connections_memory_and_disks(user, shared):
    before = status(user)
    address = before["interfaces"][0]["ipAddress"]
    booted = in_guest(user, "cat /proc/sys/kernel/random/boot_id")
    in_guest(user, "echo root > /root/note; echo scratch > /dev/vdb; echo data > /dev/vdc; sync")
    in_guest(user, f"setsid sh -c '{COUNT % PORT}' > /dev/null 2>&1 < /dev/null &")
    stream = Stream(address)
    stream.count(20)
    for name in ("there", "back"):
        source = status(user)["nodeName"]
        migration = migrate(user, name)
        state = migration["status"]["migrationState"]
        assert migration["status"]["phase"] == "Succeeded", migration
        assert status(user)["nodeName"] == state["targetNode"] != source
        await_end(user, state["sourcePod"])
        assert is_leased(shared, user)
        stream.count(100)
    stream.close()
    assert stream.failure is None
    assert stream.values == list(range(len(stream.values)))
    until("the guest is ready", lambda: is_ready(user))
    assert status(user)["interfaces"][0]["ipAddress"] == address
    assert in_guest(user, "cat /proc/sys/kernel/random/boot_id") == booted
    assert in_guest(user, "cat /root/note").strip() == "root"
    assert first_bytes(user, "/dev/vdb").startswith("scratch")
    assert first_bytes(user, "/dev/vdc").startswith("data")
    asyncio.run(type_to(user))


async def type_to(user: Outside) -> None:
    """The console takes input after a migration."""
    async with console(user, "vm") as screen:
        await screen.log_in("demo", "demo")
        await screen.types("echo heard-$((40 + 2))", "heard-42")
