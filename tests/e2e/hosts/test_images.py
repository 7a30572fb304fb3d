"""Images of one host reach the machines of the others."""

import os

import pytest
from bench.cluster import trusting, vmi
from tests.cluster import until
from tests.hosts import KUBELET_PORT, certificate_of, site

from corral.api.images import IMAGES_PATH

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

VMIS = "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstances"
NAME = "lab/of-host2:latest"
COMPLETE = f"docker.io/{NAME}"
QUERY = f"{IMAGES_PATH}?reference={NAME}&file="


@pytest.fixture(scope="module")
def hosts(tmp_path_factory, demo_disk):
    """Three hosts; the second one, which is not the first of the cluster, has an image."""
    if os.geteuid() != 0:
        pytest.skip("network namespaces of hosts need root")
    with site(tmp_path_factory.mktemp("site"), 3) as made:
        made.up("--boots", "1")
        for host in made.hosts[1:]:
            made.join(host, "--boots", "1")
        until("all nodes are ready", lambda: made.ready(*made.hosts))
        made.hosts[1].corral("image", "import", str(demo_disk), NAME)
        until("the node lists the image", lambda: COMPLETE in listed(made, "host2"))
        yield made


def listed(hosts, node):
    """The names of the images that a Node lists."""
    images = hosts.nodes()[node]["status"].get("images", ())
    return [name for image in images for name in image["names"]]


def start(hosts, node):
    """Start a machine on a node from the image; wait until it runs."""
    document = vmi(f"on-{node}")
    spec = document["spec"]
    spec["nodeSelector"] = {"kubernetes.io/hostname": node}
    spec["volumes"][0]["containerDisk"]["image"] = NAME
    hosts.api.one.call("POST", VMIS, document)
    phase = lambda: hosts.api.get("vmi", f"on-{node}").get("status", {}).get("phase")  # noqa: E731
    until("the machine runs", lambda: phase() == "Running")


@pytest.mark.parametrize("node", ["host3", "host1"])
def test_a_machine_starts_from_an_image_of_another_joined_host(hosts, node):
    start(hosts, node)
    host = hosts.hosts[int(node[-1]) - 1]
    assert COMPLETE in host.corral("image", "ls")
    assert COMPLETE not in listed(hosts, node), "a copy is left to its origin"


def test_a_removed_image_is_listed_no_more(hosts):
    hosts.hosts[1].corral("image", "rm", NAME)
    until("the node lists no image", lambda: COMPLETE not in listed(hosts, "host2"))


def test_only_nodes_read_images(hosts):
    source, reader = hosts.hosts[1], hosts.hosts[2]
    url = (source.address, KUBELET_PORT)
    assert reader.request(url, "GET", QUERY, tls=trusting())[0] == 401
    tls = certificate_of(reader)
    assert reader.request(url, "GET", QUERY, tls=tls)[0] == 404
    assert reader.request(url, "GET", "/exec/a/b/c", tls=tls)[0] == 403
