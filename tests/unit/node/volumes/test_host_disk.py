"""hostDisk: files of the node, below one directory only."""

import dataclasses
import os
import struct

import pytest

from corral.api.kinds.vmi.volumes import HostDisk, Volume
from corral.node.images import qcow
from corral.node.volumes import VolumeError, prepare

MIB = 1 << 20


@pytest.fixture
def root(tmp_path):
    root = tmp_path / "disks"
    root.mkdir(mode=0o700)
    return root


@pytest.fixture
def context(context, root):
    return dataclasses.replace(context, host_disks=root)


def volume(path, kind="Disk", capacity=None):
    source = HostDisk(path=str(path), type=kind, capacity=capacity)
    return Volume(name="host", host_disk=source)


async def refusal(context, *arguments):
    with pytest.raises(VolumeError) as caught:
        await prepare(volume(*arguments), context)
    return caught.value.message.removeprefix('MountVolume.SetUp failed for volume "host" : ')


async def test_an_existing_disk_is_used(context, root):
    (root / "a.img").write_bytes(bytes(MIB))
    disk = await prepare(volume(root / "a.img"), context)
    assert (disk.path, disk.format, disk.layers) == (root / "a.img", "raw", ())
    assert not disk.ephemeral


async def test_a_disk_is_created_sparse_with_its_directories_and_kept(context, root):
    path = root / "new" / "deep" / "a.img"
    disk = await prepare(volume(path, "DiskOrCreate", "64Mi"), context)
    found = path.stat()
    assert (disk.path, found.st_size, found.st_blocks) == (path, 64 * MIB, 0)
    assert found.st_mode & 0o777 == 0o600
    assert [each.name for each in path.parent.iterdir()] == ["a.img"]
    path.write_bytes(b"x" * MIB)
    await prepare(volume(path, "DiskOrCreate", "64Mi"), context)
    assert path.read_bytes() == b"x" * MIB


async def test_leftovers_of_a_killed_manager_are_replaced(context, root):
    (root / ".a.img.partial").write_bytes(b"half")
    await prepare(volume(root / "a.img", "DiskOrCreate", "1Mi"), context)
    assert (root / "a.img").read_bytes() == bytes(MIB)
    assert [each.name for each in root.iterdir()] == ["a.img"]


async def test_a_disk_has_one_hard_link(context, root):
    (root / "a.img").write_bytes(bytes(MIB))
    (root / ".a.img.partial").hardlink_to(root / "a.img")
    await prepare(volume(root / "a.img", "DiskOrCreate", "1Mi"), context)
    assert [each.name for each in root.iterdir()] == ["a.img"]


async def test_without_a_configured_directory_host_disks_are_rejected(context, root):
    none = dataclasses.replace(context, host_disks=None)
    assert await refusal(none, root / "a.img") == ("hostDisk is disabled on this node")


@pytest.mark.parametrize(
    "path",
    ["/etc/shadow", "{root}/../secret", "{root}", "{root}s/a.img", "a.img", "", "{root}/a/.."],
)
async def test_a_path_outside_of_the_directory_is_rejected(context, root, path):
    (root.parent / "secret").write_bytes(bytes(512))
    assert "is not below" in await refusal(context, path.format(root=root))


async def test_a_missing_disk_is_reported(context, root):
    assert await refusal(context, root / "a.img") == f"{root}/a.img does not exist"
    assert "x is no directory" in await refusal(context, root / "x" / "a.img")
    assert not list(root.iterdir())


async def test_symlinks_are_rejected(context, root, tmp_path):
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "a.img").write_bytes(bytes(MIB))
    (root / "file.img").symlink_to(secret / "a.img")
    (root / "directory").symlink_to(secret)
    assert await refusal(context, root / "file.img") == f"{root}/file.img is no regular file"
    message = await refusal(context, root / "directory" / "a.img")
    assert message.startswith(f"{root}/directory is no directory")
    created = root / "directory" / "b.img", "DiskOrCreate", "1Mi"
    assert "is no directory" in await refusal(context, *created)
    assert [each.name for each in secret.iterdir()] == ["a.img"]


async def test_devices_and_pipes_are_rejected(context, root):
    os.mkfifo(root / "pipe")
    assert await refusal(context, root / "pipe") == f"{root}/pipe is no regular file"


async def test_a_directory_writable_by_others_is_rejected(context, root):
    (root / "open").mkdir()
    (root / "open").chmod(0o777)
    (root / "open" / "a.img").write_bytes(bytes(MIB))
    message = await refusal(context, root / "open" / "a.img")
    assert "can be written by others (mode 777)" in message


async def test_only_raw_disks_are_accepted(context, root):
    qcow.create(root / "a.qcow2", MIB)
    assert await refusal(context, root / "a.qcow2") == f"{root}/a.qcow2 is no raw disk but qcow2"
    qcow.create(root / "b.qcow2", MIB, backing=root / "a.qcow2", backing_format="qcow2")
    assert "has a backing file" in await refusal(context, root / "b.qcow2")
    (root / "c.vmdk").write_bytes(struct.pack("<4s508x", b"KDMV"))
    assert "VMDK" in await refusal(context, root / "c.vmdk")
    (root / "odd").write_bytes(b"x" * 100)
    assert "not whole sectors" in await refusal(context, root / "odd")


@pytest.mark.parametrize("capacity", [None, "0", "100", "2Ei"])
async def test_an_invalid_size_is_rejected(context, root, capacity):
    message = await refusal(context, root / "a.img", "DiskOrCreate", capacity)
    assert "is not the size of a disk" in message
    assert not list(root.iterdir())


async def test_a_size_beyond_the_free_space_is_rejected(context, root):
    message = await refusal(context, root / "a.img", "DiskOrCreate", "1Pi")
    assert message.startswith(f"Unable to create {root}/a.img, not enough space, demanded size")
    assert not list(root.iterdir())
