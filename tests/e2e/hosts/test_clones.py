"""A claim of one host is cloned on another one: its content is sent from host to host."""

import os

import pytest
from tests.cluster import until
from tests.hosts import KUBELET_PORT, certificate_of, site

from corral.api.images import VOLUMES_PATH
from corral.node.storage import Storage

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

MiB = 1 << 20


def golden(node: str, size: int = 64) -> str:
    return f"""
apiVersion: v1
kind: PersistentVolumeClaim
metadata:
  name: golden-{node}
  annotations: {{volume.kubernetes.io/selected-node: {node}}}
spec:
  storageClassName: corral-wait
  accessModes: [ReadWriteOnce]
  resources: {{requests: {{storage: {size}Mi}}}}
"""


def copy(name: str, source: str, node: str) -> str:
    """A DataVolume that copies a claim, and a machine that has to run on a node."""
    return f"""
apiVersion: cdi.kubevirt.io/v1beta1
kind: DataVolume
metadata: {{name: {name}}}
spec:
  source: {{pvc: {{name: {source}, namespace: default}}}}
  pvc:
    storageClassName: corral-wait
    accessModes: [ReadWriteOnce]
    resources: {{requests: {{storage: 64Mi}}}}
---
apiVersion: kubevirt.io/v1
kind: VirtualMachineInstance
metadata: {{name: {name}}}
spec:
  nodeSelector: {{kubernetes.io/hostname: {node}}}
  terminationGracePeriodSeconds: 0
  domain:
    resources: {{requests: {{memory: 64M}}}}
    devices: {{disks: [{{name: root, disk: {{bus: virtio}}}}]}}
  volumes: [{{name: root, dataVolume: {{name: {name}}}}}]
"""


@pytest.fixture(scope="module")
def three(tmp_path_factory):
    if os.geteuid() != 0:
        pytest.skip("network namespaces of hosts need root")
    with site(tmp_path_factory.mktemp("site"), 3) as made:
        made.up()
        for host in made.hosts[1:]:
            made.join(host)
        until("all nodes are ready", lambda: made.ready(*made.hosts))
        until("the class is there", lambda: "corral-wait" in made.first.kubectl("get", "sc"))
        for host in made.hosts:
            made.first.kubectl("create", "-f", "-", input=golden(host.name))
            fill(made, host, f"golden-{host.name}")
        yield made


def stored(made, host, claim: str):
    """The volume of a claim on a host; None while there is none."""
    name = made.api.get("pvc", claim)["spec"].get("volumeName")
    return Storage(host.layout.storage).find(name) if name else None


def fill(made, host, claim: str) -> None:
    until(f"{claim} has its volume", lambda: stored(made, host, claim))
    with stored(made, host, claim).disk.path.open("r+b") as disk:
        disk.write(claim.encode())
        disk.seek(32 * MiB)
        disk.write(os.urandom(4 * MiB))


def content(made, host, claim: str) -> bytes:
    return stored(made, host, claim).disk.path.read_bytes()


def is_populated(made, name: str) -> bool:
    return made.api.get("dv", name).get("status", {}).get("phase") == "Succeeded"


@pytest.mark.parametrize(
    ("source", "target"), [("host1", "host2"), ("host2", "host1"), ("host2", "host3")]
)
def test_a_claim_is_cloned_on_another_host(three, source, target):
    hosts = {host.name: host for host in three.hosts}
    name = f"{source}-{target}"
    three.first.kubectl("create", "-f", "-", input=copy(name, f"golden-{source}", target))
    until("it is populated", lambda: is_populated(three, name))
    made = content(three, hosts[target], name)
    assert made == content(three, hosts[source], f"golden-{source}")
    until("its machine is there", lambda: three.running().get(uid(three, name)) == target)
    three.first.kubectl("delete", "vmi,dv", name)


def uid(made, name: str) -> str:
    return made.api.get("vmi", name)["metadata"]["uid"]


def test_a_clone_is_completed_after_its_source_was_away(three):
    """The source's agent is killed before the copy begins, and comes back."""
    source, target = three.hosts[1:]
    source.kill()
    three.first.kubectl("create", "-f", "-", input=copy("late", "golden-host2", "host3"))
    status = lambda: three.api.get("dv", "late").get("status", {})  # noqa: E731
    until("it has failed once", lambda: status().get("restartCount", 0) > 0)
    source.corral("join", "--detach")
    until("it is populated", lambda: is_populated(three, "late"))
    assert content(three, target, "late") == content(three, source, "golden-host2")
    three.first.kubectl("delete", "vmi,dv", "late")


def test_a_stolen_node_reads_no_volume_that_it_does_not_clone(three):
    source, thief = three.hosts[1:]
    tls = certificate_of(thief)
    query = "namespace=default&claim=golden-host2&target_namespace=default&target=golden-host3"
    for url in ((source.address, KUBELET_PORT), (three.first.address, 6443)):
        status, said = thief.request(url, "GET", f"{VOLUMES_PATH}?{query}", tls=tls)
        assert status == 403, said
