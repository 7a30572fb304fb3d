"""How QEMU's parts of a disk that comes and goes are called.  Pure.

A manager that takes a machine over finds by these names what is plugged in.
"""

import hashlib

PREFIX = "plug-"
TRAY = "tray-"
_MEDIUM = "medium-"
_DIGITS = 12  # of a digest: QEMU's names of block nodes end after 31 letters


def device_name(volume: str, claim: str) -> str:
    """The device that shows a claim to the guest: a volume's name has no dot."""
    return f"{PREFIX}{volume}.{claim}"


def shown_by(device: str) -> tuple[str, str] | None:
    """The volume and the claim that a device shows; None for one that is not plugged in."""
    return _parted(device, PREFIX)


def tray_name(volume: str) -> str:
    """The CD-ROM drive into which a volume is put."""
    return f"{TRAY}{volume}"


def medium_name(volume: str, claim: str) -> str:
    """What the descriptors of a medium are for: a drive does not tell which claim it shows."""
    return f"{_MEDIUM}{volume}.{claim}"


def medium_of(name: str) -> tuple[str, str] | None:
    """The volume and the claim of a medium; None for what is none."""
    return _parted(name, _MEDIUM)


def _parted(name: str, prefix: str) -> tuple[str, str] | None:
    if not name.startswith(prefix):
        return None
    volume, _, claim = name.removeprefix(prefix).partition(".")
    return volume, claim


def node_name(device: str) -> str:
    """The topmost block node of a device, or medium; the names of those below begin with it."""
    return PREFIX + hashlib.sha256(device.encode()).hexdigest()[:_DIGITS]
