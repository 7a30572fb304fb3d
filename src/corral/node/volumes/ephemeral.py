"""ephemeral: an ephemeral overlay above the disk of a claim, which is opened read-only."""

from corral.api.kinds.vmi.volumes import Volume
from corral.node.hypervisor import Drive
from corral.node.images import qcow
from corral.node.volumes.claim import stored_of
from corral.node.volumes.source import VolumeContext, failed


async def prepare(volume: Volume, context: VolumeContext) -> Drive:
    """Create an overlay in the machine's directory, above the claim's disk.

    The overlay is blank until the machine starts, so the claim may be written until then; from
    there on QEMU's image locking prevents that.  Raises VolumeError.
    """
    if volume.ephemeral is None or volume.ephemeral.persistent_volume_claim is None:
        raise failed(volume, "ephemeral.persistentVolumeClaim is missing")
    overlay = context.file(f"{volume.name}.qcow2")
    stored = await stored_of(volume, context)
    if not overlay.exists():
        qcow.create(
            overlay,
            stored.capacity_bytes,
            backing=stored.disk.path,
            backing_format=stored.disk.format,
        )
    return Drive(
        volume=volume.name,
        path=overlay,
        format="qcow2",
        layers=(stored.disk, *stored.layers),
        lease=stored.handle if stored.leased else "",
        shares=True,
    )
