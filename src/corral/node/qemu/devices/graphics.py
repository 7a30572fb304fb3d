"""The screen: a VGA card, and a VNC server that does not listen.

The manager hands over clients as connected sockets (``add_client``).  A card without clients costs
less than 1 MB with a guest in text mode, and no measurable boot time.
"""

from corral.node.qemu.domain import Domain, device

_CARDS = {"vga": "VGA", "bochs": "bochs-display"}


def graphics(domain: Domain) -> list[str]:
    devices = domain.vmi.spec.domain.devices
    if devices.autoattach_graphics_device is False:
        return []
    video = devices.video.type if devices.video is not None else ""
    return ["-vnc", "none", *device(_CARDS.get(video, "VGA"), id="video0")]
