"""emptyDisk: as large as requested, and nothing in it."""

import pytest

from corral.api.kinds.vmi.volumes import EmptyDisk, Volume
from corral.node.volumes import VolumeError, prepare


@pytest.mark.parametrize(
    ("capacity", "size"),
    [("2Gi", 2 << 30), ("1500k", 1 << 20), ("3M", 2 << 20), ("600Gi", 600 << 30), ("1Pi", 1 << 50)],
)
async def test_an_empty_disk_is_sparse_and_of_whole_mebibytes(context, capacity, size, judge):
    volume = Volume(name="scratch", empty_disk=EmptyDisk(capacity=capacity))
    disk = await prepare(volume, context)
    assert judge.info(disk.path)["virtual-size"] == size
    assert judge.check(disk.path)["check-errors"] == 0
    assert disk.path.stat().st_blocks * 512 < 1 << 20


@pytest.mark.parametrize("capacity", ["0", "1k", "2Pi", "-1Gi", "9999999E"])
async def test_an_empty_disk_of_invalid_size(context, capacity):
    with pytest.raises(VolumeError, match="is not between 1Mi and 1Pi") as caught:
        await prepare(Volume(name="scratch", empty_disk=EmptyDisk(capacity=capacity)), context)
    assert caught.value.reason == "FailedMount"
