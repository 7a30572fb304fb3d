"""configMap: a disk with a file for each key of a ConfigMap, as read when the machine starts."""

from corral.api.kinds.vmi.volumes import Volume
from corral.node.hypervisor import Drive
from corral.node.volumes import seed
from corral.node.volumes.seed import Files
from corral.node.volumes.source import VolumeContext

LABEL = "cfgdata"
"""Default label of configuration disks (KubeVirt)."""


async def prepare(volume: Volume, context: VolumeContext) -> Drive:
    """Return the disk; it is empty if an optional ConfigMap is missing."""
    source = volume.config_map
    assert source is not None
    return await seed.prepare(volume, context, source.volume_label or LABEL, _files)


async def _files(volume: Volume, context: VolumeContext) -> Files:
    source = volume.config_map
    assert source is not None
    return await context.config_map_of(volume, source.name, optional=bool(source.optional))
