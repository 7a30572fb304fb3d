"""Images and claims of one host reach machines of the others: their content is sent."""

import os

import pytest
from bench.cluster import trusting, vmi
from tests.cluster import until
from tests.hosts import KUBELET_PORT, certificate_of, site

from corral.api.images import IMAGES_PATH, VOLUMES_PATH
from corral.node.storage import Storage

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

MiB = 1 << 20
VMIS = "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstances"
IMAGE = "lab/of-host2:latest"
COMPLETE = f"docker.io/{IMAGE}"


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
def three(tmp_path_factory, demo_disk):
    """Three hosts; the second one, which is not the first of the cluster, has an image."""
    if os.geteuid() != 0:
        pytest.skip("network namespaces of hosts need root")
    with site(tmp_path_factory.mktemp("site"), 3) as made:
        made.up("--boots", "1")
        for host in made.hosts[1:]:
            made.join(host, "--boots", "1")
        until("all nodes are ready", lambda: made.ready(*made.hosts))
        made.hosts[1].corral("image", "import", str(demo_disk), IMAGE)
        until("the node lists the image", lambda: COMPLETE in listed(made, "host2"))
        yield made


def listed(made, node):
    """The names of the images that a Node lists."""
    images = made.nodes()[node]["status"].get("images", ())
    return [name for image in images for name in image["names"]]


def start(made, node):
    """Start a machine on a node from the image; wait until it runs."""
    document = vmi(f"on-{node}")
    spec = document["spec"]
    spec["nodeSelector"] = {"kubernetes.io/hostname": node}
    spec["terminationGracePeriodSeconds"] = 0
    spec["volumes"][0]["containerDisk"]["image"] = IMAGE
    made.api.one.call("POST", VMIS, document)
    phase = lambda: made.api.get("vmi", f"on-{node}").get("status", {}).get("phase")  # noqa: E731
    until("the machine runs", lambda: phase() == "Running")


@pytest.mark.parametrize("node", ["host3", "host1"])
def test_a_machine_starts_from_an_image_of_another_joined_host(three, node):
    start(three, node)
    host = three.hosts[int(node[-1]) - 1]
    assert COMPLETE in host.corral("image", "ls")
    assert COMPLETE not in listed(three, node), "a copy is left to its origin"
    three.first.kubectl("delete", "vmi", f"on-{node}")


def test_a_removed_image_is_listed_no_more(three):
    three.hosts[1].corral("image", "rm", IMAGE)
    until("the node lists no image", lambda: COMPLETE not in listed(three, "host2"))


def test_only_nodes_read_images(three):
    source, reader = three.hosts[1], three.hosts[2]
    url = (source.address, KUBELET_PORT)
    query = f"{IMAGES_PATH}?reference={IMAGE}&file="
    assert reader.request(url, "GET", query, tls=trusting())[0] == 401
    tls = certificate_of(reader)
    assert reader.request(url, "GET", query, tls=tls)[0] == 404
    assert reader.request(url, "GET", "/exec/a/b/c", tls=tls)[0] == 403


@pytest.fixture(scope="module")
def filled(three):
    """The same hosts, with a claim on each that has content."""
    until("the class is there", lambda: "corral-wait" in three.first.kubectl("get", "sc"))
    for host in three.hosts:
        three.first.kubectl("create", "-f", "-", input=golden(host.name))
        fill(three, host, f"golden-{host.name}")
    return three


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
def test_a_claim_is_cloned_on_another_host(filled, source, target):
    hosts = {host.name: host for host in filled.hosts}
    name = f"{source}-{target}"
    filled.first.kubectl("create", "-f", "-", input=copy(name, f"golden-{source}", target))
    until("it is populated", lambda: is_populated(filled, name))
    made = content(filled, hosts[target], name)
    assert made == content(filled, hosts[source], f"golden-{source}")
    until("its machine is there", lambda: filled.running().get(uid(filled, name)) == target)
    filled.first.kubectl("delete", "vmi,dv", name)


def uid(made, name: str) -> str:
    return made.api.get("vmi", name)["metadata"]["uid"]


def test_a_clone_is_completed_after_its_source_was_away(filled):
    """The source's agent is killed before the copy begins, and comes back."""
    source, target = filled.hosts[1:]
    source.kill()
    filled.first.kubectl("create", "-f", "-", input=copy("late", "golden-host2", "host3"))
    status = lambda: filled.api.get("dv", "late").get("status", {})  # noqa: E731
    until("it has failed once", lambda: status().get("restartCount", 0) > 0)
    source.corral("join", "--detach", "--boots", "1")
    until("it is populated", lambda: is_populated(filled, "late"))
    assert content(filled, target, "late") == content(filled, source, "golden-host2")
    filled.first.kubectl("delete", "vmi,dv", "late")


def test_a_stolen_node_reads_no_volume_that_it_does_not_clone(filled):
    source, thief = filled.hosts[1:]
    tls = certificate_of(thief)
    query = "namespace=default&claim=golden-host2&target_namespace=default&target=golden-host3"
    for url in ((source.address, KUBELET_PORT), (filled.first.address, 6443)):
        status, said = thief.request(url, "GET", f"{VOLUMES_PATH}?{query}", tls=tls)
        assert status == 403, said
