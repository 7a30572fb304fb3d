"""Pointing devices that the instance names: tablets on USB or virtio."""

from corral.node.qemu.domain import Domain, device


def inputs(domain: Domain) -> list[str]:
    arguments: list[str] = []
    for index, wanted in enumerate(domain.vmi.spec.domain.devices.inputs):
        driver = "virtio-tablet-pci" if wanted.bus == "virtio" else "usb-tablet"
        arguments += device(driver, id=f"input{index}")
    return arguments


def needs_usb(domain: Domain) -> bool:
    return any(wanted.bus != "virtio" for wanted in domain.vmi.spec.domain.devices.inputs)
