"""Volumes of files and access credentials, seen from inside real guests."""

import json
import subprocess
from pathlib import Path

import pytest
import yaml
from tests.cluster import EXAMPLES, Outside, outside, ranges, until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1800)]

REFERENCE = "kubevirt/cirros-container-disk-demo:latest"
NAME = "settings"
KEYS = "settings-keys"
MIB = 1 << 20


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Keys of two people, and the host's directory for disks."""
    place = tmp_path_factory.mktemp("place")
    for name in ("first", "second"):
        command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", place / name]
        subprocess.run(command, check=True)
    (place / "disks").mkdir(mode=0o700)
    return place


@pytest.fixture(scope="module")
def user(demo_disk, place, tmp_path_factory):
    directory = tmp_path_factory.mktemp("corral")
    disks = str(place / "disks")
    with outside(*ranges(__file__), "--host-disks", disks, directory=directory) as user:
        user.corral("image", "import", str(demo_disk), REFERENCE)
        yield user


@pytest.fixture(scope="module")
def machine(user, place):
    """The example, and a Windows answer file and a disk of the host besides."""
    documents = list(yaml.safe_load_all((EXAMPLES / "settings.yaml").read_text()))
    vmi = documents.pop()
    disks = [
        {"name": "answers", "cdrom": {"bus": "sata"}},
        {"name": "kept", "disk": {"bus": "virtio"}},
    ]
    vmi["spec"]["domain"]["devices"]["disks"] += disks
    path = str(place / "disks" / "deep" / "kept.img")
    vmi["spec"]["volumes"] += [
        {"name": "answers", "sysprep": {"configMap": {"name": "answers"}}},
        {"name": "kept", "hostDisk": {"path": path, "type": "DiskOrCreate", "capacity": "4Mi"}},
    ]
    user.kubectl("create", "-f", "-", input=json.dumps(vmi))
    waits_for(user, "not found")
    for document in documents:
        user.kubectl("create", "-f", "-", input=json.dumps(document))
    user.kubectl("create", "configmap", "answers", "--from-literal=color=green")
    waits_for(user, "Sysprep drive should contain autounattend.xml or unattend.xml")
    answers = {"data": {"Autounattend.xml": "<unattend/>"}}
    user.kubectl("patch", "configmap", "answers", "--patch", json.dumps(answers))
    until("it runs", lambda: condition(user, "AgentConnected") is not None)
    return vmi


def condition(user: Outside, kind: str) -> dict | None:
    conditions = user.get("vmi", NAME).get("status", {}).get("conditions", [])
    return next((one for one in conditions if one["type"] == kind), None)


def waits_for(user: Outside, what: str) -> None:
    def reported() -> bool:
        found = condition(user, "Synchronized")
        return found is not None and found["reason"] == "FailedMount" and what in found["message"]

    until(f"the machine waits: {what}", reported)


def inside(user: Outside, command: str) -> str:
    """Return the output of a shell in the guest."""
    pod = next(
        each["metadata"]["name"]
        for each in user.items("pods")
        if each["metadata"]["labels"].get("vm.kubevirt.io/name") == NAME
    )
    return user.kubectl("exec", pod, "--", "sh", "-c", command)


def on_disk(user: Outside, device: str) -> dict[str, str]:
    """The files of a disk, read in the guest."""
    script = (
        f"mkdir -p /tmp/disk && mount -t iso9660 -o ro {device} /tmp/disk && cd /tmp/disk && "
        'for file in $(find . -type f); do echo "== $file"; cat "$file"; echo; done; '
        "cd / && umount /tmp/disk"
    )
    files: dict[str, str] = {}
    for part in inside(user, script).split("== ./")[1:]:
        name, _, content = part.partition("\n")
        files[name] = content.removesuffix("\n")
    return files


def test_the_guest_applies_its_config_drive(user, machine):
    assert inside(user, "hostname").strip() == NAME


def test_a_config_map_and_a_secret_are_disks_with_a_file_for_each_key(user, machine):
    assert on_disk(user, "/dev/vdc") == {"color": "green"}
    assert on_disk(user, "/dev/vdd") == {"password": "correct horse"}


def test_downward_api_files_are_those_of_the_pod(user, machine):
    files = on_disk(user, "/dev/vde")
    pod = next(each for each in user.items("pods") if each["metadata"]["labels"].get("app") == NAME)
    labels = pod["metadata"]["labels"]
    assert files["app"] == NAME
    assert files["labels"] == "\n".join(f'{key}="{labels[key]}"' for key in sorted(labels))


def test_the_service_account_token_authenticates_with_read_rights_only(user, machine):
    files = on_disk(user, "/dev/vdf")
    assert files["namespace"] == "default"
    assert files["ca.crt"].startswith("-----BEGIN CERTIFICATE-----")
    assert user.get("cm", "kube-root-ca.crt")["data"]["ca.crt"].strip() == files["ca.crt"].strip()
    served = user.kubectl("get", "--raw", "/api", "--token", files["token"])
    assert json.loads(served)["versions"] == ["v1"]
    refused = user.kubectl("get", "secrets", "--token", files["token"], check=False)
    assert 'User "system:serviceaccount:default:settings" cannot list resource "secrets"' in refused


def test_a_sysprep_answer_file_is_on_a_drive_for_windows_setup(user, machine):
    assert on_disk(user, "/dev/sr0") == {"color": "green", "Autounattend.xml": "<unattend/>"}
    label = inside(user, "dd if=/dev/sr0 bs=1 skip=32808 count=10 2>/dev/null")
    assert label.strip() == "unattendCD"


def test_a_host_disk_keeps_the_data_of_the_guest(user, machine, place):
    inside(user, "printf hello | dd of=/dev/vdg conv=notrunc 2>/dev/null && sync")
    kept = place / "disks" / "deep" / "kept.img"
    assert kept.read_bytes()[:5] == b"hello"
    assert kept.stat().st_size == 4 * MIB


def ssh(user: Outside, key: Path, command: str) -> str:
    options = ("StrictHostKeyChecking=no", "UserKnownHostsFile=/dev/null", "BatchMode=yes")
    words = [word for option in options for word in ("-t", f"-o {option}")]
    whom = f"demo@vmi/{NAME}"
    return user.corral("ssh", whom, "-i", str(key), *words, "-c", command, check=False)


def test_ssh_keys_follow_their_secret(user, machine, place):
    first, second = place / "first", place / "second"
    until("the missing Secret is reported", lambda: synced(user, "False"))
    assert condition(user, "AccessCredentialsSynchronized")["message"] == (
        f'secret "{KEYS}" not found'
    )
    user.kubectl("create", "secret", "generic", KEYS, f"--from-file=key={first}.pub")
    until("the key is in place", lambda: synced(user, "True"))
    assert ssh(user, first, "echo i am $(whoami)").strip().endswith("i am root")
    fresh = user.kubectl(
        "create", "secret", "generic", KEYS, f"--from-file=key={second}.pub",
        "--dry-run=client", "-o", "json",
    )  # fmt: skip
    user.kubectl("replace", "-f", "-", input=fresh)
    wanted = Path(f"{second}.pub").read_text().strip()
    read = "cat /root/.ssh/authorized_keys"
    until("the other key is in place", lambda: inside(user, read).strip() == wanted)
    assert ssh(user, second, "echo here").strip().endswith("here")
    assert "Permission denied" in ssh(user, first, "echo here")
    events = user.kubectl("get", "events", "--field-selector", f"involvedObject.name={NAME}")
    assert "AccessCredentialsSyncSuccess" in events
    assert "AccessCredentialsSyncFailed" in events


def synced(user: Outside, status: str) -> bool:
    found = condition(user, "AccessCredentialsSynchronized")
    return found is not None and found["status"] == status
