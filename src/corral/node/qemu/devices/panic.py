"""The device by which a crashing guest kernel reports a panic, if the VMI requests one."""

from corral.node.qemu.domain import Domain, device


def panic(domain: Domain) -> list[str]:
    return device("pvpanic") if domain.vmi.spec.domain.devices.panic_devices else []
