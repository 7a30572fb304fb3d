"""Forks of a real guest, by the commands of a user: each answers by a name of its own."""

import json
import re
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
    "metadata": {"name": "vm"},
    "spec": {
        "domain": {
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
                mapped = (process / "smaps").read_text().partition("/memory\n")[2]
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


def test_forks_of_a_running_machine_have_identities_of_their_own(user):
    user.kubectl("create", "-f", "-", input=json.dumps(MACHINE))
    until("the guest is up", lambda: is_up(user, "vm"))
    in_guest(user, "vm", "echo kept > /root/note; sync")
    boot = in_guest(user, "vm", "cat /proc/sys/kernel/random/boot_id")
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
    in_guest(user, forks[0], "echo changed > /root/note; sync")
    assert in_guest(user, "vm", "hostname; cat /root/note").split() == ["vm", "kept"]
    assert in_guest(user, forks[1], "cat /root/note").strip() == "kept"
    [checkpoint] = user.items("vmcheckpoint")
    assert checkpoint["status"]["forks"] == 2
