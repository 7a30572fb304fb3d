"""DataVolumes on real disks: imported through a kill of the manager, copied, booted from."""

import json
import threading
from pathlib import Path

import pytest
from tests.cluster import Outside, outside, ranges, until
from tests.unit.node.storage.population.conftest import Server

# The server of what is imported is on this host.
RANGES = (*ranges(__file__), "--allow-destination", "127.0.0.1/32")

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1800)]


class Halting(Server):
    """Sends the first half, then nothing until somebody else asks."""

    halted = None

    def start(self):
        self.halted = threading.Event()
        return super().start()

    def _send(self, connection, body):
        if self.halted.is_set():
            super()._send(connection, body)
            return
        connection.sendall(body[: len(body) // 2])
        self.sent += len(body) // 2
        self.halted.set()
        connection.recv(1)  # until who asked is no more


def volume(name: str, source: str, size: str = "") -> str:
    storage = f"{{resources: {{requests: {{storage: {size}}}}}}}" if size else "{}"
    return f"""
apiVersion: cdi.kubevirt.io/v1beta1
kind: DataVolume
metadata: {{name: {name}}}
spec:
  source: {source}
  storage: {storage}
"""


MACHINE = """
apiVersion: kubevirt.io/v1
kind: VirtualMachineInstance
metadata: {name: booted}
spec:
  terminationGracePeriodSeconds: 0
  domain:
    memory: {guest: 64M}
    devices:
      rng: {}
      disks: [{name: root, disk: {bus: virtio}}]
      interfaces: [{name: default, masquerade: {}}]
  readinessProbe: {tcpSocket: {port: 80}, periodSeconds: 1}
  networks: [{name: default, pod: {}}]
  volumes: [{name: root, dataVolume: {name: copy}}]
"""


def create(user: Outside, *documents: str) -> None:
    user.kubectl("create", "-f", "-", input="---".join(documents))


def received(directory: Path) -> int:
    """The bytes that an import would not fetch again."""
    notes = (directory / "storage" / "filling").glob("*/content.json")
    return sum(json.loads(note.read_text())["received"] for note in notes)


def has_succeeded(user: Outside, name: str) -> bool:
    return user.get("dv", name).get("status", {}).get("phase") == "Succeeded"


def is_ready(user: Outside, name: str) -> bool:
    conditions = user.get("vmi", name).get("status", {}).get("conditions", [])
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def test_an_import_outlives_the_manager_and_a_vmi_boots_from_its_clone(demo_disk, tmp_path):
    content = demo_disk.read_bytes()
    server = Halting(content).start()
    directory = tmp_path / "corral"
    directory.mkdir()
    with outside(*RANGES, directory=directory) as user:
        create(
            user,
            volume("web", f'{{http: {{url: "{server.url}"}}}}', "1Gi"),
            volume("copy", "{pvc: {name: web, namespace: default}}"),
            MACHINE,
        )
        assert server.halted.wait(300)
        until("some of it has arrived", lambda: received(directory))
        user.kill_manager()
    with outside(*RANGES, directory=directory) as user:
        until("the import goes on", lambda: has_succeeded(user, "web"))
        assert server.header("range"), "what had arrived was kept"
        until("the copy is there", lambda: has_succeeded(user, "copy"))
        until("the machine serves", lambda: is_ready(user, "booted"))
        with (tmp_path / "disk").open("wb") as file:
            file.write(content)
        user.corral(
            "image-upload", "dv", "sent", "--size", "1Gi", "--image-path", str(tmp_path / "disk")
        )
        assert has_succeeded(user, "sent")
        user.kubectl("delete", "vmi,dv", "--all")
        until("all is given back", lambda: not user.items("pvc") + user.items("pv"))
    server.socket.close()
    assert not list((directory / "storage" / "volumes").iterdir())
    assert not list((directory / "storage" / "filling").iterdir())
