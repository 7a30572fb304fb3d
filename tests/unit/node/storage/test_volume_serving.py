"""Volumes for other hosts: whoever makes a clone gets its source, and nobody else anything."""

import json
import os
from types import SimpleNamespace

import httpx2
import msgspec
import pytest
from lightkube.models.core_v1 import PersistentVolume, PersistentVolumeClaim

from corral.api.errors import NotFound
from corral.api.images import VOLUMES_PATH
from corral.api.kinds.cdi.population import PHASE, POPULATE, SUCCEEDED
from corral.api.kinds.storage.common import SELECTED_NODE, STORAGE_LABEL
from corral.node.host.open_disks import opened
from corral.node.storage.volume_serving import VolumeServer
from corral.node.storage.volume_stream import Receiver

MiB = 1 << 20
NODE, OTHER, SERVER = "system:node:two", "system:node:three", "kube-apiserver-kubelet-client"
ALL = {"namespace": "default", "claim": "golden", "target_namespace": "default", "target": "copy"}


class Api:
    def __init__(self):
        self.objects = {}

    def add(self, kind, document):
        self.objects[kind, document["metadata"]["name"]] = msgspec.convert(document, kind)

    async def get(self, kind, name, namespace=""):
        try:
            return self.objects[kind, name]
        except KeyError:
            raise NotFound(name) from None


def copy(source="golden", node="two", **annotations):
    request = json.dumps({"source": {"pvc": {"name": source, "namespace": "default"}}})
    annotations = {POPULATE: request, SELECTED_NODE: node, **annotations}
    return {
        "metadata": {"name": "copy", "namespace": "default", "annotations": annotations},
        "spec": {},
    }


@pytest.fixture
def api(storage):
    made = Api()
    expression = {"key": STORAGE_LABEL, "operator": "In", "values": [storage.id]}
    terms = [{"matchExpressions": [expression]}]
    made.add(
        PersistentVolumeClaim,
        {
            "metadata": {"name": "golden", "namespace": "default", "uid": "u"},
            "spec": {"volumeName": "golden"},
            "status": {"phase": "Bound"},
        },
    )
    made.add(
        PersistentVolume,
        {
            "metadata": {"name": "golden"},
            "spec": {
                "csi": {"driver": "corral.dev", "volumeHandle": "golden"},
                "claimRef": {"uid": "u"},
                "nodeAffinity": {"required": {"nodeSelectorTerms": terms}},
            },
        },
    )
    made.add(PersistentVolumeClaim, copy())
    return made


@pytest.fixture
def site(api, storage):
    made = storage.provision("golden", MiB)
    with made.disk.path.open("r+b") as disk:
        disk.write(b"golden")
    server = VolumeServer(api, [storage])

    async def ask(caller=NODE, query=ALL):
        async def app(scope, receive, send):
            await server({**scope, "state": {"user": caller}}, receive, send)

        transport = httpx2.ASGITransport(app)
        async with httpx2.AsyncClient(transport=transport, base_url="http://one") as client:
            return await client.get(VOLUMES_PATH, params=query)

    return SimpleNamespace(ask=ask, storage=storage, api=api)


def content(answer, tmp_path):
    receiver = Receiver(tmp_path / "received", MiB)
    receiver.feed(answer.content)
    receiver.close()
    assert receiver.is_complete
    return (tmp_path / "received").read_bytes()


@pytest.mark.parametrize("caller", [NODE, SERVER])
async def test_the_node_that_makes_a_clone_gets_its_source(site, caller, tmp_path):
    answer = await site.ask(caller)
    assert answer.status_code == 200
    assert content(answer, tmp_path) == b"golden".ljust(MiB, b"\0")


@pytest.mark.parametrize(
    ("caller", "target"),
    [
        (OTHER, copy()),
        (NODE, copy(node="three")),
        (NODE, copy(source="another")),
        (NODE, copy(**{PHASE: SUCCEEDED})),
        (NODE, {"metadata": {"name": "copy"}, "spec": {}}),
    ],
    ids=["of another node", "made elsewhere", "of another claim", "made already", "no clone"],
)
async def test_no_other_node_gets_it(site, caller, target):
    site.api.add(PersistentVolumeClaim, target)
    assert (await site.ask(caller)).status_code == 403


async def test_a_missing_clone_gets_nothing(site):
    assert (await site.ask(query=ALL | {"target": "none"})).status_code == 403
    assert (await site.ask(query={})).status_code == 403


async def test_a_volume_in_use_is_not_sent(site):
    held = opened(site.storage.get("golden").disk.path, os.O_RDWR)
    answer = await site.ask()
    assert (answer.status_code, answer.text) == (409, "a machine writes volume golden")
    os.close(held)
    assert (await site.ask()).status_code == 200


async def test_a_volume_with_layers_is_sent_as_one_disk_and_leaves_nothing(site, tmp_path):
    site.storage.provision("other", MiB)
    site.storage.clone("golden", "other")
    answer = await site.ask()
    assert content(answer, tmp_path) == b"golden".ljust(MiB, b"\0")
    assert list((site.storage.get("golden").directory.parent.parent / "staging").iterdir()) == []
    assert (await site.ask()).status_code == 200
