"""Copies of claims in other storages: of this host, and of other hosts."""

import os
from contextlib import asynccontextmanager

import pytest

from corral.api.errors import Unavailable
from corral.api.kinds.cdi.datavolume import Source
from corral.api.object import Key
from corral.node.host.open_disks import opened
from corral.node.images.peer import Peer
from corral.node.storage import InUse, Storage, StorageError
from corral.node.storage.disk_space import Space
from corral.node.storage.population.error import NotReady, PopulationError
from corral.node.storage.population.job import Job
from corral.node.storage.population.other_storages import OtherStorages
from corral.node.storage.volume_stream import read

MiB = 1 << 20
SOURCE = Key("lab", "golden")
JOB = Job(key=Key("default", "copy"), uid="u", handle="copy", capacity=MiB, source=Source())


class Far:
    """Another host: ``cut`` is after how many bytes it stops, ``status`` what it answers."""

    def __init__(self, disk):
        self.disk, self.cut, self.status, self.paths, self.breaks = disk, None, 200, [], False

    @asynccontextmanager
    async def download(self, path, headers):
        self.paths.append(path)
        yield self.status, self._content()

    async def _content(self):
        if self.status != 200:
            yield b"a machine writes volume golden"
            return
        yield b"".join(read(self.disk))[: self.cut]
        if self.breaks:
            raise Unavailable("the connection broke")


def filled(directory):
    storage = Storage(directory, space=lambda _: Space(100 * MiB, 100 * MiB))
    made = storage.provision("golden", MiB)
    with made.disk.path.open("r+b") as disk:
        disk.write(b"golden")
    return storage, made


@pytest.fixture
def far(tmp_path):
    return Far(filled(tmp_path / "far")[1].disk.path)


@pytest.fixture
def work(tmp_path):
    made = tmp_path / "work"
    made.mkdir()
    return made


def from_far(far):
    peers = {"s2": Peer(far.download, "node two")}
    return OtherStorages((), peers.get)


async def copied(others, work, storage="s2", seen=None):
    report = (seen if seen is not None else []).append
    return (await others.copy(JOB, SOURCE, (storage, "golden"), work, report)).read_bytes()


async def test_a_volume_of_another_host_is_received(far, work):
    seen = []
    assert await copied(from_far(far), work, seen=seen) == b"golden".ljust(MiB, b"\0")
    assert far.paths == [
        "/corral/volumes?namespace=lab&claim=golden&target_namespace=default&target=copy"
    ]


async def test_after_a_cut_the_copy_begins_anew(far, work):
    others = from_far(far)
    far.cut = 2000
    with pytest.raises(PopulationError, match="node two has stopped sending lab/golden before"):
        await copied(others, work)
    far.breaks = True
    with pytest.raises(PopulationError, match=r"node two does not send lab/golden.*broke"):
        await copied(others, work)
    far.cut, far.breaks = None, False
    with far.disk.open("r+b") as disk:
        disk.write(b"newer!")
    assert await copied(others, work) == b"newer!".ljust(MiB, b"\0")


@pytest.mark.parametrize(("status", "error"), [(409, NotReady), (403, PopulationError)])
async def test_the_refusal_of_a_host_has_its_reason(far, work, status, error):
    far.status = status
    with pytest.raises(error, match="does not send lab/golden: a machine writes volume golden"):
        await copied(from_far(far), work)


async def test_a_larger_volume_than_the_claim_is_refused(far, work):
    with far.disk.open("r+b") as disk:
        disk.truncate(2 * MiB)
    with pytest.raises(StorageError, match="request as much storage as the source has"):
        await copied(from_far(far), work)


async def test_a_storage_that_no_ready_node_has_is_waited_for(far, work):
    with pytest.raises(NotReady, match="no ready node has the volume") as caught:
        await copied(from_far(far), work, "s3")
    assert caught.value.reason == "CloneSourceUnreachable"


async def test_a_volume_of_another_storage_of_this_host_is_copied(tmp_path, work):
    storage, made = filled(tmp_path / "here")
    others = OtherStorages([storage])
    held = opened(made.disk.path, os.O_RDWR)
    with pytest.raises(InUse):
        await copied(others, work, storage.id)
    os.close(held)
    assert await copied(others, work, storage.id) == b"golden".ljust(MiB, b"\0")
