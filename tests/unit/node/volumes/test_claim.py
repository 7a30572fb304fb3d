"""Disks of claims: their own, and throw-away overlays over them."""

from dataclasses import replace

import pytest

from corral.api.kinds.vmi.volumes import (
    ClaimSource,
    DataVolumeVolume,
    EphemeralVolume,
    PersistentVolumeClaimVolume,
    Volume,
)
from corral.node.storage import Storage, StorageError
from corral.node.volumes import VolumeError, prepare

MiB = 1 << 20


@pytest.fixture
def storage(tmp_path):
    return Storage(tmp_path / "storage")


@pytest.fixture
def context(context, storage):
    async def find(name):
        if (found := storage.find(name)) is None:
            raise StorageError(f'persistentvolumeclaim "{name}" not found', "create it")
        return found

    return replace(context, claim=find)


OWN = Volume(name="disk", persistent_volume_claim=PersistentVolumeClaimVolume(claim_name="data"))
OF_DATA_VOLUME = Volume(name="disk", data_volume=DataVolumeVolume(name="data"))
THROW_AWAY = Volume(
    name="disk", ephemeral=EphemeralVolume(persistent_volume_claim=ClaimSource(claim_name="data"))
)


@pytest.mark.parametrize("volume", [OWN, OF_DATA_VOLUME])
async def test_the_disk_of_a_claim_is_used_directly(context, storage, volume):
    stored = storage.provision("data", MiB)
    disk = await prepare(volume, context)
    assert (disk.path, disk.format, disk.layers) == (stored.disk.path, "raw", ())
    assert not disk.ephemeral
    assert not disk.read_only


async def test_a_claim_can_be_read_only(context, storage):
    storage.provision("data", MiB)
    source = PersistentVolumeClaimVolume(claim_name="data", read_only=True)
    assert (await prepare(Volume(name="disk", persistent_volume_claim=source), context)).read_only


async def test_an_ephemeral_overlay_has_all_layers_of_the_claim(context, storage, judge):
    storage.provision("golden", MiB).disk.path.write_bytes(b"x" * MiB)
    storage.provision("data", MiB)
    stored = storage.clone("golden", "data")
    disk = await prepare(THROW_AWAY, context)
    assert await prepare(THROW_AWAY, context) == disk
    assert disk.ephemeral
    assert disk.path.is_relative_to(context.directory)
    assert disk.layers == (stored.disk, *stored.layers)
    assert judge.info(disk.path)["virtual-size"] == MiB


@pytest.mark.parametrize("volume", [OWN, OF_DATA_VOLUME, THROW_AWAY])
async def test_a_missing_claim_is_reported_and_awaited(context, storage, volume):
    with pytest.raises(VolumeError, match='volume "disk" : persistentvolumeclaim "data" not found'):
        await prepare(volume, context)
    storage.provision("data", MiB)
    await prepare(volume, context)


async def test_an_ephemeral_overlay_without_a_claim_is_an_error(context):
    with pytest.raises(VolumeError, match="ephemeral"):
        await prepare(Volume(name="disk", ephemeral=EphemeralVolume()), context)
