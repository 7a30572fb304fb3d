"""Disks that outlive their machines, in real guests: kept, grown, cloned, not shared by chance."""

import os
import signal

import pytest
from tests.cluster import Outside, outside, ranges, until
from tests.e2e.test_session import REFERENCE, qemu_of

from corral.node.storage import Storage

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def user(demo_disk, tmp_path_factory):
    with outside(*ranges(__file__), directory=tmp_path_factory.mktemp("corral")) as user:
        user.corral("image", "import", str(demo_disk), REFERENCE)
        yield user


def claim(name: str, size: str = "64Mi", source: str = "") -> str:
    clone = f"dataSource: {{kind: PersistentVolumeClaim, name: {source}}}" if source else ""
    return f"""
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {{name: {name}}}
spec:
  accessModes: [ReadWriteOnce]
  {clone}
  resources: {{requests: {{storage: {size}}}}}
"""


def machine(name: str, *claims: str, root: bool = True) -> str:
    volumes = ["{name: root, containerDisk: {image: kubevirt/cirros-container-disk-demo}}"] * root
    names = ["root"] * root
    for index, each in enumerate(claims):
        volumes.append(f"{{name: data{index}, persistentVolumeClaim: {{claimName: {each}}}}}")
        names.append(f"data{index}")
    disks = ", ".join(f"{{name: {each}, disk: {{bus: virtio}}}}" for each in names)
    return f"""
apiVersion: kubevirt.io/v1
kind: VirtualMachineInstance
metadata: {{name: {name}}}
spec:
  terminationGracePeriodSeconds: 0
  domain:
    memory: {{guest: 64M}}
    devices: {{rng: {{}}, disks: [{disks}]}}
  volumes: [{", ".join(volumes)}]
"""


def create(user: Outside, *documents: str) -> None:
    user.kubectl("create", "-f", "-", input="---".join(documents))


def phase(user: Outside, name: str) -> str:
    return user.get("vmi", name)["status"]["phase"]


def is_running(user: Outside, name: str) -> bool:
    return user.get("vmi", name).get("status", {}).get("phase") == "Running"


def is_up(user: Outside, name: str) -> bool:
    conditions = user.get("vmi", name).get("status", {}).get("conditions", [])
    return any(one["type"] == "AgentConnected" and one["status"] == "True" for one in conditions)


def start(user: Outside, name: str, *claims: str, root: bool = True) -> None:
    create(user, machine(name, *claims, root=root))
    until(f"{name} is up", lambda: is_up(user, name))


def end(user: Outside, name: str) -> None:
    user.kubectl("delete", "vmi", name)
    until(f"{name} is gone", lambda: name not in user.kubectl("get", "vmi,pods"))


def run(user: Outside, name: str, script: str) -> str:
    pods = user.items("pods", "-l", f"vm.kubevirt.io/name={name}")
    return user.kubectl("exec", pods[0]["metadata"]["name"], "--", "sh", "-c", script)


def stored(user: Outside, name: str):
    volume = user.get("pvc", name)["spec"]["volumeName"]
    return Storage(user.one.directory / "storage").find(volume)


def bound(user: Outside, name: str, size: str = "64Mi") -> None:
    def is_bound() -> bool:
        status = user.get("pvc", name)["status"]
        return status["phase"] == "Bound" and status["capacity"]["storage"] == size

    until(f"{name} is bound", is_bound)


def test_data_of_a_guest_survives_a_kill_and_its_disk_grows_while_it_runs(user):
    create(user, claim("data"))
    start(user, "first", "data")
    assert run(user, "first", "cat /sys/block/vdb/size").strip() == str((64 << 20) // 512)
    run(user, "first", "echo kept > /dev/vdb; sync")
    os.kill(qemu_of(user.get("vmi", "first")["metadata"]["uid"]), signal.SIGKILL)
    until("it has failed", lambda: phase(user, "first") == "Failed")
    end(user, "first")
    start(user, "second", "data")
    assert run(user, "second", "head -c 4 /dev/vdb") == "kept"
    larger = '{"spec": {"resources": {"requests": {"storage": "128Mi"}}}}'
    user.kubectl("patch", "pvc", "data", "--type", "merge", "-p", larger)
    bound(user, "data", "128Mi")
    assert run(user, "second", "cat /sys/block/vdb/size").strip() == str((128 << 20) // 512)
    end(user, "second")
    assert stored(user, "data").disk.path.stat().st_size == 128 << 20
    user.kubectl("delete", "pvc", "data")


def test_two_machines_cannot_write_one_disk(user):
    create(user, claim("single"), machine("owner", "single"))
    until("it runs", lambda: is_running(user, "owner"))
    create(user, machine("other", "single"))
    words = 'the disk of volume "data0" is used by another machine'
    until("it is reported", lambda: words in user.kubectl("describe", "vmi", "other"))
    until("it waits on its node", lambda: phase(user, "other") in ("Scheduling", "Scheduled"))
    create(user, claim("early", source="single"))
    until("it waits", lambda: "CloneSourceInUse" in user.kubectl("describe", "pvc", "early"))
    end(user, "owner")
    until("the next has it", lambda: is_running(user, "other"))
    end(user, "other")
    bound(user, "early")
    user.kubectl("delete", "pvc", "single", "early")


def test_clones_of_one_disk_boot_and_are_independent(user, demo_disk):
    size = "64Mi"
    create(user, claim("golden", size))
    bound(user, "golden", size)
    storage = Storage(user.one.directory / "storage")
    handle = stored(user, "golden").handle
    content = storage.work_directory(handle) / "content"
    content.write_bytes(demo_disk.read_bytes())
    storage.populate(handle, content, "raw")
    create(user, claim("left", size, "golden"), claim("right", size, "golden"))
    bound(user, "left", size)
    bound(user, "right", size)
    layers = {stored(user, name).layers[0].path.stat().st_ino for name in ("left", "right")}
    assert len(layers) == 1
    create(user, machine("left", "left", root=False), machine("right", "right", root=False))
    for name in ("left", "right"):
        until(f"{name} is up", lambda name=name: is_up(user, name))
        run(user, name, f"echo {name} > /root/which; sync")
        end(user, name)
    start(user, "again", "left", root=False)
    assert run(user, "again", "cat /root/which") == "left\n"
    end(user, "again")


def test_an_ephemeral_overlay_does_not_change_its_claim(user):
    create(user, claim("base"))
    bound(user, "base")
    document = (
        machine("light")
        .replace(
            "volumes: [",
            "volumes: [{name: over, ephemeral: {persistentVolumeClaim: {claimName: base}}}, ",
        )
        .replace("disks: [", "disks: [{name: over, disk: {bus: virtio}}, ")
    )
    create(user, document.replace("name: root, disk: {bus", "name: root, bootOrder: 1, disk: {bus"))
    until("it is up", lambda: is_up(user, "light"))
    run(user, "light", "echo lost > /dev/vda; sync; head -c 4 /dev/vda | grep lost")
    end(user, "light")
    assert not any(stored(user, "base").disk.path.read_bytes())
