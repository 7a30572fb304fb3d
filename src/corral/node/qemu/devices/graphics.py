"""The screen: a VGA card, and a VNC server that listens nowhere.

Whoever may see the screen is handed over by the manager, as a connected socket (``add_client``).
A card that nobody looks at costs less than 1 MB beside a guest that stays in text mode, and no time
to boot that could be measured.
"""

from corral.node.qemu.domain import Domain, device

_CARDS = {"vga": "VGA", "bochs": "bochs-display"}


def graphics(domain: Domain) -> list[str]:
    devices = domain.vmi.spec.domain.devices
    if devices.autoattach_graphics_device is False:
        return []
    video = devices.video.type if devices.video is not None else ""
    return ["-vnc", "none", *device(_CARDS.get(video, "VGA"), id="video0")]
