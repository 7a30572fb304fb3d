"""Names of QEMU's devices and block nodes for hotplugged disks.  Pure.

A manager that adopts a machine finds its plugged disks by these names.
"""

import hashlib

PREFIX = "plug-"
TRAY = "tray-"
_MEDIUM = "medium-"
_DIGITS = 12  # of a digest: QEMU's names of block nodes have at most 31 characters


def device_name(volume: str, claim: str) -> str:
    """Return the device that shows a claim to the guest; names of volumes have no dot."""
    return f"{PREFIX}{volume}.{claim}"


def shown_by(device: str) -> tuple[str, str] | None:
    """Return the volume and claim of a device; None for one that was not hotplugged."""
    return _parted(device, PREFIX)


def tray_name(volume: str) -> str:
    """Return the CD-ROM drive of a volume."""
    return f"{TRAY}{volume}"


def medium_name(volume: str, claim: str) -> str:
    """Return the name of a medium's descriptors, since a drive does not report its claim."""
    return f"{_MEDIUM}{volume}.{claim}"


def medium_of(name: str) -> tuple[str, str] | None:
    """Return the volume and claim of a medium; None for another name."""
    return _parted(name, _MEDIUM)


def _parted(name: str, prefix: str) -> tuple[str, str] | None:
    if not name.startswith(prefix):
        return None
    volume, _, claim = name.removeprefix(prefix).partition(".")
    return volume, claim


def node_name(device: str) -> str:
    """Return the top block node of a device or medium, a prefix of its other nodes."""
    return PREFIX + hashlib.sha256(device.encode()).hexdigest()[:_DIGITS]
