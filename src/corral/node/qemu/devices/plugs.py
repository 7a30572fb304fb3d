"""How QEMU's parts of a disk that comes and goes are called.  Pure.

A manager that takes a machine over finds by these names what is plugged in.
"""

import hashlib

PREFIX = "plug-"
_DIGITS = 12  # of a digest: QEMU's names of block nodes end after 31 letters


def device_name(volume: str) -> str:
    """The device that shows a volume to the guest."""
    return f"{PREFIX}{volume}"


def volume_of(device: str) -> str | None:
    """The volume that a device shows; None for one that is not plugged in."""
    return device.removeprefix(PREFIX) if device.startswith(PREFIX) else None


def node_name(volume: str) -> str:
    """The topmost block node of a volume; the names of those below begin with it."""
    return PREFIX + hashlib.sha256(volume.encode()).hexdigest()[:_DIGITS]
