"""secret: a file for each key."""

import pytest

from corral.api.kinds.vmi.volumes import SecretVolume, Volume
from corral.node.volumes import VolumeError, prepare


def volume(name="camel", **fields):
    return Volume(name="keys", secret=SecretVolume(secret_name=name, **fields))


async def test_each_key_is_a_private_file(context, iso):
    disk = await prepare(volume(), context)
    files = iso(disk.path)
    assert files == {"userData": b"camel", "networkData": b"net"}
    assert files.label == "cfgdata"
    assert disk.path.stat().st_mode & 0o777 == 0o600


async def test_a_missing_secret_delays_the_start_unless_optional(context, iso):
    with pytest.raises(VolumeError, match='volume "keys" : secret "gone" not found'):
        await prepare(volume("gone"), context)
    assert iso((await prepare(volume("gone", optional=True), context)).path) == {}
