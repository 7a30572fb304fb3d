"""From a claim to its files, and everything that can be wrong on the way."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import msgspec
import pytest
from lightkube.models.core_v1 import PersistentVolume, PersistentVolumeClaim

from corral.api.errors import NotFound
from corral.api.kinds.cdi.population import PHASE, POPULATE
from corral.node.storage import Storage, StorageError
from corral.node.storage.claim_volumes import Claims

MiB = 1 << 20


class Api:
    """The objects of a cluster: one claim, and one volume."""

    def __init__(self, storage):
        self.claim = {
            "metadata": {"name": "data", "namespace": "default", "uid": "u"},
            "spec": {"volumeName": "pvc-u"},
            "status": {"phase": "Bound"},
        }
        terms = [{"key": "corral.dev/storage", "operator": "In", "values": [storage.id]}]
        self.volume = {
            "metadata": {"name": "pvc-u"},
            "spec": {
                "claimRef": {"uid": "u"},
                "csi": {"driver": "corral.dev", "volumeHandle": "pvc-u"},
                "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": terms}]}},
            },
        }

    async def get(self, view, name, namespace=""):
        document = {PersistentVolumeClaim: self.claim, PersistentVolume: self.volume}[view]
        if document is None:
            raise NotFound(name)
        return msgspec.convert(document, view)


@pytest.fixture
def storage(tmp_path):
    storage = Storage(tmp_path)
    storage.provision("pvc-u", MiB)
    return storage


@pytest.fixture
def api(storage):
    return Api(storage)


async def test_the_files_of_a_claim(api, storage):
    assert await Claims(api, [storage]).find("default", "data") == storage.find("pvc-u")


def gone(api, storage):
    api.claim = None


def going(api, storage):
    api.claim["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"


def pending(api, storage):
    api.claim["status"]["phase"] = "Pending"


def unfilled(api, storage):
    api.claim["metadata"]["annotations"] = {POPULATE: "{}", PHASE: "Running"}


def without_volume(api, storage):
    api.volume = None


def of_another(api, storage):
    api.volume["spec"]["claimRef"]["uid"] = "other"


def elsewhere(api, storage):
    terms = api.volume["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"]
    terms[0]["matchExpressions"][0]["values"] = ["other"]


def by_path(api, storage):
    api.volume["spec"] |= {"csi": None, "hostPath": {"path": "/etc/shadow"}}


def out_of_the_storage(api, storage):
    api.volume["spec"]["csi"]["volumeHandle"] = "../../etc"


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (gone, '"data" not found'),
        (going, "is being deleted"),
        (pending, "is not bound"),
        (unfilled, "is not populated yet"),
        (without_volume, 'persistentvolume "pvc-u" not found'),
        (of_another, "bound to another claim"),
        (elsewhere, "not lie in the storage of this node"),
        (by_path, "not lie in the storage of this node"),
        (out_of_the_storage, "files of persistentvolume"),
    ],
)
async def test_unusable_claims_are_reported_with_the_reason(api, storage, change, why):
    change(api, storage)
    with pytest.raises(StorageError, match=why):
        await Claims(api, [storage]).find("default", "data")


async def test_a_node_without_storage_has_no_claims(api):
    with pytest.raises(StorageError, match="storage of this node"):
        await Claims(api, []).find("default", "data")


async def test_a_storage_that_does_not_answer_blocks_nothing_else(api, storage, monkeypatch):
    loop = asyncio.get_running_loop()
    loop.set_default_executor(ThreadPoolExecutor(1))
    begun, answers, find = asyncio.Event(), threading.Event(), storage.find

    def find_late(handle):
        loop.call_soon_threadsafe(begun.set)
        assert answers.wait(60), "the event loop, or the shared thread, waits for the storage"
        return find(handle)

    monkeypatch.setattr(storage, "find", find_late)
    finding = asyncio.create_task(Claims(api, [storage]).find("default", "data"))
    await begun.wait()
    assert await asyncio.to_thread(bool, "answered")
    answers.set()
    assert await finding == find("pvc-u")
