"""ephemeral: a throw-away overlay over a claim, which is only read."""

from corral.api.kinds.vmi.volumes import Volume
from corral.node.hypervisor import Drive
from corral.node.images import qcow
from corral.node.volumes.claim import stored_of
from corral.node.volumes.source import VolumeContext, failed


async def prepare(volume: Volume, context: VolumeContext) -> Drive:
    """Put an overlay into the machine's directory; the claim's disk is its nearest layer.

    It is blank until the machine starts, so it fits whatever the claim holds then; QEMU's locks see
    to it that nobody writes the claim from there on.  Raises VolumeError.
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
        volume=volume.name, path=overlay, format="qcow2", layers=(stored.disk, *stored.layers)
    )
