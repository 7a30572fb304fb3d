"""Warnings about disks that several VMIs of one template would write to at once."""

from collections.abc import Collection, Iterator

from corral.api.kind import at
from corral.api.object import Document


def shared_disks(spec: Document, path: str, *, own: Collection[str] = ()) -> Iterator[str]:
    """Yield a warning for each volume of a template's spec that every VMI would write to.

    ``own`` are names that each VMI has its own volume for; ``path`` is where the spec is.
    """
    disks = {each["name"]: each for each in at(spec, "domain", "devices", "disks") or ()}
    for index, volume in enumerate(spec.get("volumes") or ()):
        name = _disk_of(volume)
        if name and name not in own and _is_writable(disks.get(volume["name"]) or {}):
            yield (
                f"{path}.volumes[{index}]: every machine would write to {name}, which is one disk: "
                "machines that write to the same file system corrupt its data"
            )


def _disk_of(volume: Document) -> str:
    """Return the DataVolume or PVC that a volume is writable through; empty if there is none."""
    claim = volume.get("persistentVolumeClaim") or {}
    if claim.get("readOnly"):
        return ""
    return at(volume, "dataVolume", "name") or claim.get("claimName") or ""


def _is_writable(disk: Document) -> bool:
    if disk.get("cdrom") is not None:
        return False
    return not any(at(disk, target, "readonly") for target in ("disk", "lun"))
