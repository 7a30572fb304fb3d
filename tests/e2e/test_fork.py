"""Forks of a real guest, by the commands of a user: each answers by a name of its own."""

import json
import os
import re
import subprocess
import time
from pathlib import Path

import pytest
from tests.cluster import outside, ranges, until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

REFERENCE = "kubevirt/cirros-container-disk-demo:latest"


@pytest.fixture(scope="module")
def user(demo_disk, tmp_path_factory):
    with outside(*ranges(__file__), directory=tmp_path_factory.mktemp("corral")) as user:
        user.corral("image", "import", str(demo_disk), REFERENCE)
        yield user


MACHINE = {
    "apiVersion": "kubevirt.io/v1",
    "kind": "VirtualMachineInstance",
    # As that of a VirtualMachine, which may get more sockets.
    "metadata": {"name": "vm", "annotations": {"corral.dev/boot-sockets": "1"}},
    "spec": {
        "domain": {
            "cpu": {"sockets": 1, "maxSockets": 4},
            "memory": {"guest": "128Mi"},
            "devices": {
                "rng": {},
                "interfaces": [{"name": "default", "masquerade": {}}],
                "disks": [
                    {"name": "root", "disk": {"bus": "virtio"}},
                    {"name": "seed", "disk": {"bus": "virtio"}},
                ],
            },
        },
        "networks": [{"name": "default", "pod": {}}],
        "volumes": [
            {"name": "root", "containerDisk": {"image": REFERENCE}},
            {"name": "seed", "cloudInitNoCloud": {"userData": "#cloud-config\npassword: demo\n"}},
        ],
    },
}


HELD = "/mnt/held"
FILL = f"head -c 8000000 /dev/urandom > {HELD}/file"
"""A file in the memory of the guest."""


def is_up(user, name: str) -> bool:
    conditions = user.get("vmi", name).get("status", {}).get("conditions", [])
    return any(one["type"] == "AgentConnected" and one["status"] == "True" for one in conditions)


def reasons(user, name: str) -> set[str]:
    return {one["reason"] for one in user.items("events") if one["involvedObject"]["name"] == name}


def memory_of(uid: str) -> tuple[int, int]:
    """Resident and proportional KiB of a fork's memory, which it maps from the checkpoint."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            arguments = (process / "cmdline").read_bytes()
            if uid.encode() in arguments and b"memory-backend-file" in arguments:
                mapped = (
                    (process / "smaps").read_text().partition("/memfd:checkpoint (deleted)\n")[2]
                )
                sizes = dict(re.findall(r"(Rss|Pss): +(\d+) kB", mapped.partition("VmFlags")[0]))
                return int(sizes["Rss"]), int(sizes["Pss"])
        except (FileNotFoundError, ProcessLookupError):
            continue
    raise AssertionError(f"no QEMU of {uid} maps a checkpoint")


def in_guest(user, name: str, command: str) -> str:
    [pod] = [
        pod["metadata"]["name"]
        for pod in user.items("pod")
        if pod["metadata"]["labels"].get("vm.kubevirt.io/name") == name
    ]
    return user.kubectl("exec", pod, "--", "sh", "-c", command)


def host_key(user, name: str) -> str:
    """Return the key by which the SSH server of a guest shows itself."""
    address = user.get("vmi", name)["status"]["interfaces"][0]["ipAddress"]
    command = ["ssh-keyscan", "-t", "ed25519", "-T", "60", address]
    scanned = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return scanned.split()[2]


def test_forks_of_a_running_machine_have_identities_of_their_own(user):
    user.kubectl("create", "-f", "-", input=json.dumps(MACHINE))
    until("the guest is up", lambda: is_up(user, "vm"))
    in_guest(user, "vm", "echo kept > /root/note; sync")
    boot = in_guest(user, "vm", "cat /proc/sys/kernel/random/boot_id")
    in_guest(user, "vm", f"mkdir {HELD}; mount -t tmpfs none {HELD}; {FILL}")
    held = in_guest(user, "vm", f"md5sum {HELD}/file")
    assert host_key(user, "vm")  # its SSH server has made one
    user.corral("fork", "vm", "--count", "2")
    names = [one["metadata"]["name"] for one in user.items("vmi")]
    forks = [name for name in names if name != "vm"]
    assert len(forks) == 2
    for name in forks:
        until("the fork is itself", lambda name=name: "IdentityRenewed" in reasons(user, name))
        assert "Forked" in reasons(user, name)
        assert in_guest(user, name, "hostname").strip() == name
        assert in_guest(user, name, "cat /proc/sys/kernel/random/boot_id") == boot
        assert in_guest(user, name, "cat /root/note").strip() == "kept"
    for one in (vmi["metadata"] for vmi in user.items("vmi")):
        if one["name"] in forks:
            resident, proportional = memory_of(one["uid"])
            assert proportional < 0.9 * resident, "the forks share pages"
    numbers = {in_guest(user, name, "head -c 32 /dev/urandom | base64") for name in (*forks, "vm")}
    assert len(numbers) == 3
    addresses = {one["status"]["interfaces"][0]["ipAddress"] for one in user.items("vmi")}
    assert len(addresses) == 3
    assert len({host_key(user, name) for name in (*forks, "vm")}) == 3
    in_guest(user, forks[0], "echo changed > /root/note; sync")
    assert in_guest(user, "vm", "hostname; cat /root/note").split() == ["vm", "kept"]
    assert in_guest(user, forks[1], "cat /root/note").strip() == "kept"
    # Linux reports free pages within two seconds, and QEMU gives them back to the host.
    in_guest(user, forks[0], f"rm {HELD}/file; sleep 5")
    assert in_guest(user, forks[1], f"md5sum {HELD}/file") == held
    assert abs(int(in_guest(user, forks[1], "date -u +%s")) - time.time()) < 20
    [checkpoint] = user.items("vmcheckpoint")
    assert checkpoint["status"]["forks"] == 2
    occupied = re.search(r"1, (\d+) MiB on disk, (\d+) MiB of memory", user.corral("status"))
    assert all(10 < int(each) < 128 for each in occupied.groups())


def test_a_vmi_boots_from_now_on_if_one_byte_of_the_checkpoint_has_changed(user):
    [checkpoint] = user.items("vmcheckpoint")
    name, uid = checkpoint["metadata"]["name"], checkpoint["metadata"]["uid"]
    forks = [each for each in user.items("vmi") if each["metadata"]["name"] != "vm"]
    user.kubectl("delete", "vmi", *(each["metadata"]["name"] for each in forks))
    [memory] = user.one.directory.glob(f"nodes/*/checkpoints/{uid}/memory")
    until("no fork shares its memory", lambda: "0 MiB of memory" in user.corral("status"))
    before = memory.stat()
    with memory.open("r+b") as file:
        file.seek(before.st_size // 2)
        byte = file.read(1)[0]
        file.seek(before.st_size // 2)
        file.write(bytes([byte ^ 1]))
    os.utime(memory, ns=(before.st_atime_ns, before.st_mtime_ns))
    metadata = {"name": "late", "annotations": {"corral.dev/start-from": name}}
    user.kubectl("create", "-f", "-", input=json.dumps({**MACHINE, "metadata": metadata}))
    until("it boots", lambda: "ForkFailed" in reasons(user, "late"))
    user.kubectl("wait", "vmcheckpoint", name, "--for", "condition=Failed", "--timeout", "60s")
    assert "Damaged" in reasons(user, name)
    until("its files are gone", lambda: not memory.exists())
    user.kubectl("delete", "vmi", "late")


SET = {
    "apiVersion": "kubevirt.io/v1",
    "kind": "VirtualMachineInstanceReplicaSet",
    "metadata": {"name": "web"},
    "spec": {
        "replicas": 0,
        "selector": {"matchLabels": {"app": "web"}},
        "template": {"metadata": {"labels": {"app": "web"}}, "spec": MACHINE["spec"]},
    },
}
POOL = {
    "apiVersion": "corral.dev/v1alpha1",
    "kind": "VirtualMachineWarmPool",
    "metadata": {"name": "spares"},
    "spec": {
        "targetRef": {"apiVersion": "kubevirt.io/v1", "kind": SET["kind"], "name": "web"},
        "replicas": 3,
        "startFrom": "Checkpoint",
    },
}


def machines(user, selector: str) -> list[dict]:
    found = json.loads(user.kubectl("get", "vmi", "-l", selector, "-o", "json"))["items"]
    return [one for one in found if "deletionTimestamp" not in one["metadata"]]


def is_forked(machine: dict) -> bool:
    """Report whether a machine has started from its checkpoint, and is itself."""
    conditions = {one["type"]: one["status"] for one in machine["status"]["conditions"]}
    return conditions.get("Forked") == "True"


def ready_names(user, selector: str) -> set[str]:
    return {
        one["metadata"]["name"]
        for one in machines(user, selector)
        for each in one.get("status", {}).get("conditions", [])
        if (each["type"], each["status"]) == ("Ready", "True")
    }


def test_a_set_heals_from_spares_that_are_copies_of_the_first(user):
    user.kubectl("create", "-f", "-", input=json.dumps(SET))
    user.kubectl("create", "-f", "-", input=json.dumps(POOL))
    user.kubectl("wait", "vmwp", "spares", "--for", "condition=Ready", "--timeout", "300s")
    [checkpoint] = pool_checkpoints(user)
    found = machines(user, "corral.dev/warm-pool=spares")
    origins = [one["metadata"]["annotations"].get("corral.dev/start-from") for one in found]
    assert sorted(filter(None, origins)) == [checkpoint] * 2
    names = {one["metadata"]["name"] for one in found}
    assert {in_guest(user, name, "hostname").strip() for name in names} == names
    assert [is_forked(one) for one in found].count(True) == 2
    user.kubectl("scale", "vmirs", "web", "--replicas", "2")
    until("the set has adopted spares", lambda: len(ready_names(user, "app=web")) == 2)
    assert ready_names(user, "app=web") < names
    gone, kept = sorted(ready_names(user, "app=web"))
    user.kubectl("delete", "vmi", gone, "--wait=false")
    until("it is whole", lambda: len(ready_names(user, "app=web") - {gone}) == 2)
    assert kept in ready_names(user, "app=web")
    spare = "corral.dev/warm-pool=spares"
    until("it has spares again", lambda: len(ready_names(user, spare)) == 3)
    everybody = ready_names(user, "app=web") - {gone} | ready_names(user, spare)
    assert len(everybody) == 5
    numbers = {in_guest(user, name, "head -c 32 /dev/urandom | base64") for name in everybody}
    assert len(numbers) == 5
    user.kubectl("delete", "vmwp", "spares")
    until("its checkpoint is gone", lambda: not pool_checkpoints(user))


def pool_checkpoints(user) -> list[str]:
    """Return the names of the checkpoints that the warm pool has made."""
    listed = user.kubectl(
        "get", "vmcheckpoint", "-l", "corral.dev/warm-pool=spares", "-o", "name"
    ).split()
    return [name.rpartition("/")[2] for name in listed]


VM_POOL = {
    "apiVersion": "pool.kubevirt.io/v1beta1",
    "kind": "VirtualMachinePool",
    "metadata": {"name": "lab"},
    "spec": {
        "replicas": 1,
        "selector": {"matchLabels": {"app": "lab"}},
        "virtualMachineTemplate": {
            "metadata": {"labels": {"app": "lab"}},
            "spec": {
                "runStrategy": "Always",
                "template": {"metadata": {"labels": {"app": "lab"}}, "spec": MACHINE["spec"]},
            },
        },
    },
}


def test_a_pool_grows_by_copies_that_have_its_numbers(user):
    user.kubectl("delete", "vmirs,vmi", "--all")
    reference = {"apiVersion": VM_POOL["apiVersion"], "kind": VM_POOL["kind"], "name": "lab"}
    spec = {"targetRef": reference, "startFrom": "Checkpoint"}
    user.kubectl("create", "-f", "-", input=json.dumps(VM_POOL))
    user.kubectl("create", "-f", "-", input=json.dumps({**POOL, "spec": spec}))
    user.kubectl("wait", "vmwp", "spares", "--for", "condition=Ready", "--timeout", "300s")
    [checkpoint] = pool_checkpoints(user)
    user.kubectl("scale", "vmpool", "lab", "--replicas", "4")
    names = [f"lab-{number}" for number in range(4)]
    user.kubectl("wait", "vmi", *names[1:], "--for", "condition=Forked", "--timeout", "120s")
    found = {one["metadata"]["name"]: one for one in machines(user, "app=lab")}
    assert sorted(found) == names
    assert not is_forked(found["lab-0"])
    for name in names[1:]:
        assert found[name]["metadata"]["annotations"]["corral.dev/start-from"] == checkpoint
        assert in_guest(user, name, "hostname").strip() == name
    assert len({host_key(user, name) for name in names[1:]}) == 3
    user.kubectl("delete", "vmwp", "spares")
