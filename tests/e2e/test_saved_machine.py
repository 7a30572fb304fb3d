"""A machine that is saved and goes on, as its user sees it: by kubectl, in a real guest."""

import asyncio
import json

import pytest
from tests.cluster import Outside, outside, ranges, until
from tests.console import console

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1800)]

REFERENCE = "kubevirt/cirros-container-disk-demo:latest"
COUNT = "i=0; while :; do echo n=$i; i=$((i+1)); sleep 0.1; done"


@pytest.fixture(scope="module")
def user(demo_disk, tmp_path_factory):
    with outside(*ranges(__file__), directory=tmp_path_factory.mktemp("corral")) as user:
        user.corral("image", "import", str(demo_disk), REFERENCE)
        create(user, claim("data"))
        create(user, claim("vm-memory"))
        yield user


def create(user: Outside, document: dict) -> None:
    user.kubectl("create", "-f", "-", input=json.dumps(document))


def claim(name: str) -> dict:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "256Mi"}},
        },
    }


def machine(annotations: dict[str, str]) -> dict:
    disks = ("root", "scratch", "data")
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstance",
        "metadata": {"name": "vm", "annotations": annotations},
        "spec": {
            "domain": {
                "memory": {"guest": "128Mi"},
                "devices": {
                    "rng": {},
                    "interfaces": [{"name": "default", "masquerade": {}}],
                    "disks": [{"name": name, "disk": {"bus": "virtio"}} for name in disks],
                },
            },
            "readinessProbe": {"httpGet": {"port": 80}, "periodSeconds": 1},
            "networks": [{"name": "default", "pod": {}}],
            "volumes": [
                {"name": "root", "containerDisk": {"image": REFERENCE}},
                {"name": "scratch", "emptyDisk": {"capacity": "64Mi"}},
                {"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
            ],
        },
    }


def phase(user: Outside) -> str:
    return user.get("vmi", "vm").get("status", {}).get("phase", "")


def has_condition(user: Outside, condition: str) -> bool:
    conditions = user.get("vmi", "vm")["status"].get("conditions", [])
    return any(one["type"] == condition and one["status"] == "True" for one in conditions)


def up(user: Outside) -> None:
    """Wait until the guest answers by TCP, and its agent is there."""
    until(
        "the guest is ready",
        lambda: has_condition(user, "Ready") and has_condition(user, "AgentConnected"),
    )


def in_guest(user: Outside, command: str) -> str:
    [pod] = user.items("pod")
    return user.kubectl("exec", pod["metadata"]["name"], "--", "sh", "-c", command)


async def begin_to_count(user: Outside) -> None:
    async with console(user, "vm") as screen:
        await screen.log_in("demo", "demo")
        await screen.types(COUNT, r"n=10\r")


async def count(user: Outside) -> int:
    async with console(user, "vm") as screen:
        first = int((await screen.says(r"n=(\d+)\r"))[1])
        await screen.says(rf"n={first + 5}\r")
        return first


def save(user: Outside) -> dict:
    """Save the machine and let it go; answers the mark on its claim."""
    user.kubectl("annotate", "vmi", "vm", "corral.dev/save-to=vm-memory")
    until("the machine is saved", lambda: phase(user) == "Succeeded")
    annotations = user.get("pvc", "vm-memory")["metadata"]["annotations"]
    user.kubectl("delete", "vmi", "vm")
    return json.loads(annotations["corral.dev/saved-machine"])


def restore(user: Outside, mark: dict) -> None:
    annotations = {
        "corral.dev/restore-from": "vm-memory",
        "corral.dev/identity": mark["identity"],
    }
    create(user, machine(annotations))
    until("it runs", lambda: phase(user) == "Running")


def reasons(user: Outside) -> set[str]:
    return {one["reason"] for one in user.items("events")}


def test_a_restored_shell_continues_and_the_disks_are_unchanged(user):
    create(user, machine({}))
    up(user)
    in_guest(user, "echo root > /root/note; echo scratch > /dev/vdb; echo data > /dev/vdc")
    booted = in_guest(user, "cat /proc/sys/kernel/random/boot_id")
    asyncio.run(begin_to_count(user))
    mark = save(user)
    assert 0 < mark["bytes"] < 128 << 20
    restore(user, mark)
    assert 10 < asyncio.run(count(user)) < 1000
    up(user)  # as a new connection by TCP has shown
    assert in_guest(user, "cat /proc/sys/kernel/random/boot_id") == booted
    notes = in_guest(user, "cat /root/note; head -n 1 /dev/vdb; head -n 1 /dev/vdc")
    assert notes.split() == ["root", "scratch", "data"]
    assert "obtained" in in_guest(user, "udhcpc -n -q -i eth0 2>&1")
    assert "Restored" in reasons(user)
    assert "corral.dev/saved-machine" not in user.get("pvc", "vm-memory")["metadata"]["annotations"]


def test_a_disk_written_by_another_machine_invalidates_the_memory(user):
    mark = save(user)
    [volume] = [
        pv["spec"]["csi"]["volumeHandle"]
        for pv in user.items("pv")
        if pv["spec"]["claimRef"]["name"] == "data"
    ]
    [disk] = (user.one.directory / "storage" / "volumes" / volume).glob("disk-*")
    with disk.open("r+b") as written:
        written.write(b"another\n")
    restore(user, mark)
    up(user)
    assert in_guest(user, "head -n 1 /dev/vdc").strip() == "another"
    assert not in_guest(user, "ls /root").split()
    messages = [one["message"] for one in user.items("events") if one["reason"] == "RestoreFailed"]
    assert any("was changed since" in one for one in messages)
