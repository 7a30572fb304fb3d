"""configMap: a file for each key."""

import pytest

from corral.api.kinds.vmi.volumes import ConfigMapVolume, Volume
from corral.node.volumes import VolumeError, prepare


def volume(name="login", **fields):
    return Volume(name="settings", config_map=ConfigMapVolume(name=name, **fields))


async def test_there_is_a_file_for_each_key(context, iso, judge):
    disk = await prepare(volume("camel"), context)
    files = iso(disk.path)
    assert files == {"userData": b"camel", "networkData": b"net"}
    assert judge.run("blkid", "-p", "-o", "value", "-s", "LABEL", disk.path) == b"cfgdata\n"


async def test_the_volume_label_is_configurable(context, judge):
    label = "a-label-of-as-many-letters-as-32"
    disk = await prepare(volume(volume_label=label), context)
    assert (
        judge.run("blkid", "-p", "-o", "value", "-s", "LABEL", disk.path).decode() == f"{label}\n"
    )


async def test_a_missing_config_map_delays_the_start(context):
    with pytest.raises(VolumeError) as caught:
        await prepare(volume("gone"), context)
    assert str(caught.value) == (
        'MountVolume.SetUp failed for volume "settings" : configmap "gone" not found'
    )
    assert caught.value.hint == "create it in the namespace farm"


async def test_a_missing_optional_config_map_is_an_empty_disk(context, iso):
    assert iso((await prepare(volume("gone", optional=True), context)).path) == {}


async def test_the_disk_is_a_snapshot_of_the_config_map(context, iso):
    disk = await prepare(volume("login"), context)
    assert await prepare(volume("camel"), context) == disk
    assert iso(disk.path) == {"userdata": b"#cloud-config\n"}
