"""Random numbers from the host: without them a guest may wait long for initial entropy."""

from corral.node.qemu.domain import Domain, device


def rng(domain: Domain) -> list[str]:
    if domain.vmi.spec.domain.devices.rng is None:
        return []
    return [
        "-object",
        '{"qom-type":"rng-builtin","id":"rng0"}',
        *device("virtio-rng-pci", rng="rng0"),
    ]
