"""A shared directory on a host: its label and condition, and what turns them."""

import asyncio
import errno

import pytest

from corral.api.kinds.storage.common import SHARED_LABEL
from corral.node.storage import shared_directory
from corral.node.storage.host_heartbeats import HostHeartbeats
from corral.node.storage.shared_storage import SharedStorage

CLUSTER = "sha256:1"


@pytest.fixture
def directory(tmp_path):
    made = tmp_path / "shared"
    made.mkdir(mode=0o700)
    shared_directory.create(made, CLUSTER, tmp_path / "remembered")
    return made


async def until(holds):
    async with asyncio.timeout(60):
        while not holds():
            await asyncio.sleep(0.01)


def opened(directory, published):
    return SharedStorage(
        directory,
        CLUSTER,
        host="a",
        node="node-a",
        client=None,
        machines=(),
        publish=lambda: published.append(1),
    )


async def test_a_node_with_the_directory_has_its_label(directory):
    shared = opened(directory, [])
    assert shared.labels() == {SHARED_LABEL: (directory / "id").read_text()}
    assert shared.condition().active


async def test_a_directory_that_is_unmounted_takes_the_label_away(directory, monkeypatch):
    monkeypatch.setattr("corral.node.storage.shared_storage.INTERVAL_SECONDS", 0.01)
    published = []
    shared = opened(directory, published)
    task = asyncio.create_task(shared.run())
    marker = directory / "cluster"
    marker.rename(directory / "away")
    await until(lambda: not shared.condition().active)
    assert shared.labels() == {SHARED_LABEL: None}
    assert "marker is missing" in shared.condition().message
    (directory / "away").rename(marker)
    await until(lambda: shared.condition().active)
    assert len(published) == 2
    task.cancel()


async def test_a_read_only_directory_is_reported(directory, monkeypatch):
    shared = opened(directory, [])

    def fails(_heartbeats):
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(HostHeartbeats, "beat", fails)
    task = asyncio.create_task(shared.run())
    await until(lambda: not shared.condition().active)
    assert "Read-only file system" in shared.condition().message
    task.cancel()
