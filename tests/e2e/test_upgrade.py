"""An update of QEMU under running machines: their guests run on where they can move into it."""

import json
import os
from pathlib import Path

import pytest
from tests.cluster import Outside, outside, ranges, until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

REFERENCE = "kubevirt/cirros-container-disk-demo:latest"
QEMU = "/usr/bin/qemu-system-x86_64"
OLD_QEMU = f"""\
#!/bin/sh
# A QEMU whose q35 is an older machine type.
case "$*" in
--version) echo "QEMU emulator version 7.1.0 (Old)"; exit;;
"-machine help") {QEMU} -machine help | sed 's/alias of pc-q35-[0-9.]*/alias of pc-q35-7.1/'; exit;;
esac
for word; do
  shift
  case $word in q35,*) word="pc-q35-7.1,${{word#q35,}}";; esac
  set -- "$@" "$word"
done
exec {QEMU} "$@"
"""
NEW_QEMU = f"""\
#!/bin/sh
case "$*" in --version) echo "QEMU emulator version 99.0.0 (New)"; exit;; esac
exec {QEMU} "$@"
"""
BOOT = "cat /proc/sys/kernel/random/boot_id"


def install(directory: Path, text: str) -> None:
    """Install a QEMU as a package manager does: in one step."""
    directory.mkdir(parents=True, exist_ok=True)
    unpacked = directory / "unpacked"
    unpacked.write_text(text)
    unpacked.chmod(0o755)
    unpacked.rename(directory / "qemu-system-x86_64")


def replica_set(name: str, binding: str) -> dict:
    labels = {"app": name}
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstanceReplicaSet",
        "metadata": {"name": name},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "terminationGracePeriodSeconds": 0,
                    "domain": {
                        "memory": {"guest": "128Mi"},
                        "devices": {
                            "rng": {},
                            "interfaces": [{"name": "default", binding: {}}],
                            "disks": [{"name": "root", "disk": {"bus": "virtio"}}],
                        },
                    },
                    "networks": [{"name": "default", "pod": {}}],
                    "volumes": [{"name": "root", "containerDisk": {"image": REFERENCE}}],
                },
            },
        },
    }


def vmi(user: Outside, app: str) -> dict:
    [found] = user.items("vmi", "-l", f"app={app}")
    return found


def has(machine: dict, condition: str) -> bool:
    conditions = machine.get("status", {}).get("conditions", [])
    return any((each["type"], each["status"]) == (condition, "True") for each in conditions)


def outdated(user: Outside) -> int:
    """The number of outdated VMIs, once labels and the KubeVirt object agree; else -1."""
    labelled = len(user.items("vmi", "-l", "kubevirt.io/outdatedLauncherImage"))
    status = user.get("kubevirt", "kubevirt", "-n", "kubevirt")["status"]
    counted = status["outdatedVirtualMachineInstanceWorkloads"]
    return labelled if labelled == counted else -1


def in_guest(user: Outside, machine: dict, command: str) -> str:
    node, uid = machine["status"]["nodeName"], machine["metadata"]["uid"]
    [pod] = [
        each["metadata"]["name"]
        for each in user.items("pod")
        if each["metadata"]["ownerReferences"][0]["uid"] == uid
        and each["spec"]["nodeName"] == node
        and each["status"]["phase"] == "Running"
    ]
    return user.kubectl("exec", pod, "--", "sh", "-c", command)


@pytest.fixture
def user(demo_disk, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", f"{tmp_path}/qemu/bin{os.pathsep}{os.environ['PATH']}")
    install(tmp_path / "qemu" / "bin", OLD_QEMU)
    directory = tmp_path / "data"
    directory.mkdir()
    with outside("--nodes", "2", *ranges(__file__), directory=directory) as user:
        user.corral("image", "import", str(demo_disk), REFERENCE)
        for name, binding in (("moves", "masquerade"), ("stays", "bridge")):
            user.kubectl("create", "-f", "-", input=json.dumps(replica_set(name, binding)))
        yield user


def test_machines_move_into_a_qemu_that_is_installed_while_they_run(user, tmp_path):
    def are_up() -> bool:
        machines = user.items("vmi")
        return len(machines) == 2 and all(has(each, "AgentConnected") for each in machines)

    until("both guests are up", are_up)
    before, tied = vmi(user, "moves"), vmi(user, "stays")
    for each in (before, tied):
        version = each["status"]["launcherContainerImageVersion"]
        assert version == "corral/launcher:1 QEMU 7.1.0 (Old)"
        assert each["status"]["machine"]["type"] == "pc-q35-7.1"
    boot = in_guest(user, before, BOOT)
    assert outdated(user) == 0
    assert user.corral("upgrade", "machines") == "no machine is outdated\n"

    install(tmp_path / "qemu" / "bin", NEW_QEMU)
    until("both are outdated", lambda: outdated(user) == 2)
    listed = user.corral("upgrade", "machines", "--dry-run")
    assert "it runs in QEMU 7.1.0 (Old), its node starts QEMU 99.0.0 (New)" in listed
    assert "MOVES" in listed
    printed = user.corral("upgrade", "machines", check=False)
    assert f"[1/1] default/{before['metadata']['name']} moved in " in printed, printed
    name = tied["metadata"]["name"]
    assert f"kubectl delete vmi {name} -n default ends it; its set starts another." in printed
    assert "1 of 2 outdated machines moved" in printed

    until("one is outdated", lambda: outdated(user) == 1)
    after = vmi(user, "moves")
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert after["status"]["nodeName"] != before["status"]["nodeName"]
    version = after["status"]["launcherContainerImageVersion"]
    assert version == "corral/launcher:1 QEMU 99.0.0 (New)"
    assert after["status"]["machine"]["type"] == "pc-q35-7.1"
    assert in_guest(user, after, BOOT) == boot

    strategy = {"workloadUpdateMethods": ["LiveMigrate", "Evict"]}
    patch = json.dumps({"spec": {"workloadUpdateStrategy": strategy}})
    patched = ("patch", "kubevirt", "kubevirt", "-n", "kubevirt", "--type", "merge", "-p", patch)
    assert "Warning" not in user.kubectl(*patched)
    until("none is outdated", lambda: outdated(user) == 0)

    def is_replaced() -> bool:
        found = [each["metadata"]["uid"] for each in user.items("vmi", "-l", "app=stays")]
        return len(found) == 1 and found != [tied["metadata"]["uid"]]

    until("the other one is replaced", is_replaced)

    def is_up() -> bool:
        return vmi(user, "stays").get("status", {}).get("phase") == "Running"

    until("the other machine runs", is_up)
    status = vmi(user, "stays")["status"]
    assert status["launcherContainerImageVersion"] == "corral/launcher:1 QEMU 99.0.0 (New)"
    assert status["machine"]["type"] != "pc-q35-7.1"
