"""Pointing devices that the VMI requests: tablets on USB or virtio."""

from corral.node.qemu.domain import Domain, device


def inputs(domain: Domain) -> list[str]:
    arguments: list[str] = []
    for index, tablet in enumerate(domain.vmi.spec.domain.devices.inputs):
        driver = "virtio-tablet-pci" if tablet.bus == "virtio" else "usb-tablet"
        arguments += device(driver, id=f"input{index}")
    return arguments


def needs_usb(domain: Domain) -> bool:
    return any(tablet.bus != "virtio" for tablet in domain.vmi.spec.domain.devices.inputs)
