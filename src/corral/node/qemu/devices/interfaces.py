"""Network cards, each on a user network of QEMU's own: outbound traffic needs no privilege.

The guest gets 10.0.2.15 by DHCP and reaches what its host reaches.  Nothing reaches the guest.

That includes what listens on the host's loopback only: behind 10.0.2.2 QEMU connects to 127.0.0.1.
Its library could refuse that (libslirp, disable_host_loopback), but QEMU offers no option for it;
``restrict=on`` would take away every other connection too.
"""

from corral.api.kinds.machine import host_name
from corral.node.addresses import USER_NETWORK, mac
from corral.node.qemu.devices.boot import boot_indexes
from corral.node.qemu.domain import Domain, device, option

_DRIVERS = {"": "virtio-net-pci", "virtio": "virtio-net-pci"}


def interfaces(domain: Domain) -> list[str]:
    spec = domain.vmi.spec
    order = boot_indexes(domain)
    ranges = {
        network.name: network.pod.vm_network_cidr
        for network in spec.networks
        if network.pod is not None and network.pod.vm_network_cidr
    }
    arguments: list[str] = []
    for index, interface in enumerate(spec.domain.devices.interfaces):
        if interface.state == "absent":
            continue
        boot_index = order.get(("interface", interface.name))
        arguments += option(
            "netdev",
            type="user",
            id=f"net{index}",
            net=ranges.get(interface.name, USER_NETWORK),
            ipv6=False,
            hostname=host_name(domain.vmi),
        )
        arguments += device(
            _DRIVERS.get(interface.model, interface.model),
            id=f"nic{index}",
            netdev=f"net{index}",
            mac=interface.mac_address or mac(domain.vmi.metadata.uid, interface.name),
            bootindex=boot_index,
            # An option ROM is loaded only where the card can be booted from.
            romfile=None if boot_index is not None else "",
            **({"acpi-index": interface.acpi_index} if interface.acpi_index else {}),
        )
    return arguments
