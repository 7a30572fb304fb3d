"""persistentVolumeClaim and dataVolume: a persistent disk.

The claim of a DataVolume has the DataVolume's name (CDI).  For both volume modes, Filesystem and
Block, the guest sees a disk of the claim's size.
"""

from corral.api.kinds.vmi.volumes import Volume, claims_of
from corral.node.host.open_disks import can_be_direct
from corral.node.hypervisor import Drive
from corral.node.storage import StorageError, StoredVolume
from corral.node.volumes.source import VolumeContext, failed


async def prepare(volume: Volume, context: VolumeContext) -> Drive:
    """Return the claim's own disk; creates no files."""
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
        lease=stored.handle if stored.leased else "",
    )


async def stored_of(volume: Volume, context: VolumeContext) -> StoredVolume:
    """Return the stored volume of a claim.  Raises VolumeError."""
    name = claims_of([volume])[volume.name]
    try:
        return await context.claim(name)
    except StorageError as error:
        raise failed(volume, error.message, error.hint) from error
