"""Volumes and interfaces of which a fork can have a copy.  No I/O."""

from collections.abc import Iterator
from typing import Final

from corral.api.kinds.vmi.vmi import Spec, VirtualMachineInstance

_COPYABLE: Final = {
    "container_disk": "containerDisk",
    "empty_disk": "emptyDisk",
    "cloud_init_no_cloud": "cloudInitNoCloud",
    "cloud_init_config_drive": "cloudInitConfigDrive",
    "config_map": "configMap",
    "secret": "secret",
}
"""Sources of volumes that a fork can have a copy of, or makes anew, with their fields' names."""


def obstacles(spec: Spec, path: str = "spec") -> Iterator[str]:
    """Yield the fields of a VMI's spec that a fork could not have a copy of, each with advice.

    ``path`` is that of the spec.
    """
    for index, volume in enumerate(spec.volumes):
        if not any(getattr(volume, each) is not None for each in _COPYABLE):
            yield (
                f'{path}.volumes[{index}]: the disk of volume "{volume.name}" cannot be copied; '
                f"checkpoints work with {', '.join(_COPYABLE.values())}"
            )
    for index, interface in enumerate(spec.domain.devices.interfaces):
        if interface.masquerade is None and interface.state != "absent":
            yield (
                f"{path}.domain.devices.interfaces[{index}]: forks have the MAC address of their "
                "source, which works with masquerade only"
            )


def volumes_of(vmi: VirtualMachineInstance) -> tuple[str, ...]:
    """Return the names of the volumes, each with its source, which a fork must have as well."""
    return tuple(
        sorted(
            f"{volume.name} ({source})"
            for volume in vmi.spec.volumes
            for each, source in _COPYABLE.items()
            if getattr(volume, each) is not None
        )
    )
