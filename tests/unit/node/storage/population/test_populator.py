"""The loop that populates claims, without a cluster."""

from types import SimpleNamespace

import msgspec
import pytest
from lightkube.models.core_v1 import PersistentVolume, PersistentVolumeClaim

from corral.api.kinds.cdi import population
from corral.api.kinds.storage.common import STORAGE_LABEL
from corral.api.object import Key
from corral.node.images.store import ImageStore
from corral.node.storage.population import Populator, Uploads
from corral.node.storage.provision_plan import DRIVER

KEY = Key("default", "disk")


class Informer(dict):
    """Objects by their keys; a test calls its handler."""

    def __init__(self):
        self.handler = None

    def index(self, *_): ...

    def handle(self, handler):
        self.handler = handler


@pytest.fixture
def informers():
    return {}


@pytest.fixture
def fillings(informers, storage, tmp_path):
    context = SimpleNamespace(
        informers=SimpleNamespace(of=lambda view: informers.setdefault(view, Informer())),
        client=None,
    )
    return Populator(context, storage, ImageStore(tmp_path / "images"), Uploads())


def claim(phase="Bound"):
    document = {
        "metadata": {
            "name": KEY.name,
            "namespace": KEY.namespace,
            "uid": "u",
            "annotations": {population.POPULATE: '{"source":{"blank":{}}}'},
        },
        "spec": {"volumeName": "pvc-u"},
    }
    if phase:
        document["status"] = {"phase": phase}
    return msgspec.convert(document, PersistentVolumeClaim)


def volume(storage):
    here = {"key": STORAGE_LABEL, "operator": "In", "values": [storage.id]}
    document = {
        "metadata": {"name": "pvc-u"},
        "spec": {
            "claimRef": {"name": KEY.name, "namespace": KEY.namespace},
            "csi": {"driver": DRIVER, "volumeHandle": "pvc-u"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}},
        },
    }
    return msgspec.convert(document, PersistentVolume)


@pytest.mark.parametrize(("phase", "has"), [("Bound", True), ("Pending", False), (None, False)])
def test_a_claim_has_a_volume_once_it_is_bound(fillings, storage, informers, phase, has):
    informers[PersistentVolume][Key("", "pvc-u")] = volume(storage)
    assert (fillings.volume_of(claim(phase)) is not None) is has
    assert fillings.handle_of(claim(phase)) == ("pvc-u" if has else None)


async def test_a_change_of_a_volume_enqueues_its_claim(fillings, storage, informers):
    informers[PersistentVolume].handler(None, volume(storage))
    assert len(fillings.queue) == 1
    async with fillings.queue.process_next() as key:
        assert key == KEY


async def test_a_volume_that_the_storage_does_not_have_is_not_filled(fillings, storage, informers):
    informers[PersistentVolumeClaim][KEY] = claim()
    informers[PersistentVolume][Key("", "pvc-u")] = volume(storage)
    assert storage.find("pvc-u") is None
    await fillings._reconcile(KEY)
