"""secret: a disk with a file for each key of a Secret, as read when the machine starts."""

from corral.api.kinds.vmi.volumes import Volume
from corral.node.hypervisor import Drive
from corral.node.volumes import seed
from corral.node.volumes.config_map import LABEL
from corral.node.volumes.seed import Files
from corral.node.volumes.source import VolumeContext


async def prepare(volume: Volume, context: VolumeContext) -> Drive:
    """Return the disk; it is empty if an optional Secret is missing."""
    source = volume.secret
    assert source is not None
    return await seed.prepare(volume, context, source.volume_label or LABEL, _files)


async def _files(volume: Volume, context: VolumeContext) -> Files:
    source = volume.secret
    assert source is not None
    return await context.secret_of(volume, source.secret_name, optional=bool(source.optional))
