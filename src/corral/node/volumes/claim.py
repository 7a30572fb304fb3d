"""persistentVolumeClaim and dataVolume: a disk that stays when the machine goes.

A DataVolume's claim has its name (CDI).  Whether a claim is for a file system or a block device,
the guest sees a disk of the claim's size.
"""

from corral.api.kinds.vmi.volumes import Volume, claims_of
from corral.node.host.open_disks import can_be_direct
from corral.node.hypervisor import Drive
from corral.node.storage import StorageError, StoredVolume
from corral.node.volumes.source import VolumeContext, failed


async def prepare(volume: Volume, context: VolumeContext) -> Drive:
    """The claim's own disk; nothing is made, so nothing is left behind."""
    stored = await stored_of(volume, context)
    source = volume.persistent_volume_claim
    return Drive(
        volume=volume.name,
        path=stored.disk.path,
        format=stored.disk.format,
        read_only=source is not None and source.read_only,
        layers=stored.layers,
        ephemeral=False,
        direct=can_be_direct(stored.disk.path),
    )


async def stored_of(volume: Volume, context: VolumeContext) -> StoredVolume:
    """The stored volume behind a machine's volume.  Raises VolumeError."""
    name = claims_of([volume])[volume.name]
    try:
        return await context.claim(name)
    except StorageError as error:
        raise failed(volume, error.message, error.hint) from error
