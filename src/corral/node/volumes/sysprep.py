"""sysprep: a disk with the answer file of an unattended Windows installation."""

from corral.api.kinds.vmi.volumes import Volume
from corral.node.hypervisor import Drive
from corral.node.volumes import seed
from corral.node.volumes.seed import Files
from corral.node.volumes.source import VolumeContext, failed

LABEL = "unattendCD"
ANSWER_FILES = ("autounattend.xml", "unattend.xml")
"""Of Windows Setup, case-insensitive; one of them is required."""


async def prepare(volume: Volume, context: VolumeContext) -> Drive:
    return await seed.prepare(volume, context, LABEL, _files)


async def _files(volume: Volume, context: VolumeContext) -> Files:
    source = volume.sysprep
    assert source is not None
    if source.secret is not None and source.secret.name:
        files = await context.secret_of(volume, source.secret.name)
    elif source.config_map is not None and source.config_map.name:
        files = await context.config_map_of(volume, source.config_map.name)
    else:
        raise failed(volume, "sysprep names neither a secret nor a configMap")
    if not any(name.lower() in ANSWER_FILES for name in files):
        message = (
            f"Sysprep drive should contain {' or '.join(ANSWER_FILES)} but neither were found."
        )
        raise failed(volume, message, "add one of these keys")
    return files
