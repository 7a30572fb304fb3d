"""Whatever its source, a volume is prepared through one door."""

import pytest

from corral.api.kinds.vmi.volumes import ContainerPathVolume, EmptyDisk, Volume
from corral.node.volumes import SOURCES, VolumeError, prepare


def test_every_source_is_a_field_of_volume():
    assert SOURCES.keys() <= set(Volume.__struct_fields__)


async def test_a_source_without_a_module_is_rejected(context):
    source = ContainerPathVolume(path="/etc/shadow")
    with pytest.raises(VolumeError, match="not supported"):
        await prepare(Volume(name="host", container_path=source), context)


async def test_names_cannot_escape_the_directory(context):
    with pytest.raises(VolumeError, match="not a DNS label"):
        await prepare(Volume(name="../up", empty_disk=EmptyDisk(capacity="1Gi")), context)


async def test_an_unwritable_directory_is_reported(context):
    context.directory.write_bytes(b"a file")
    with pytest.raises(VolumeError, match="Not a directory"):
        await prepare(Volume(name="scratch", empty_disk=EmptyDisk(capacity="1Gi")), context)
