"""Network interfaces: each on its tap in the pod's network, or on QEMU's user network.

The latter is for hosts without a pod network.  The guest then gets 10.0.2.15 by DHCP and reaches
what its host reaches; nothing reaches the guest.  That includes servers on the host's loopback:
behind 10.0.2.2 QEMU connects to 127.0.0.1.  Its library could refuse that (libslirp,
disable_host_loopback), but QEMU has no option for it; ``restrict=on`` would block every other
connection, too.
"""

from corral.api.kinds.vmi.addresses import USER_NETWORK, mac_of
from corral.api.kinds.vmi.derived import host_name
from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.node.qemu.devices.boot import boot_indexes
from corral.node.qemu.domain import Domain, device, option

_DRIVERS = {"": "virtio-net-pci", "virtio": "virtio-net-pci"}


def interfaces(domain: Domain) -> list[str]:
    order = boot_indexes(domain)
    arguments: list[str] = []
    for index, interface in enumerate(domain.vmi.spec.domain.devices.interfaces):
        if interface.state == "absent":
            continue
        boot_index = order.get(("interface", interface.name))
        arguments += _backend(domain, interface.name, f"net{index}")
        arguments += device(
            _DRIVERS.get(interface.model, interface.model),
            id=_card(index),
            netdev=f"net{index}",
            mac=mac_of(domain.vmi, interface),
            bootindex=boot_index,
            # An option ROM is loaded only for an interface that can be booted from.
            romfile=None if boot_index is not None else "",
            **({"acpi-index": interface.acpi_index} if interface.acpi_index else {}),
        )
    return arguments


def unplugged(domain: Domain) -> list[str]:
    """Return the interfaces whose link is down, by QEMU's names."""
    cards = enumerate(domain.vmi.spec.domain.devices.interfaces)
    return [_card(index) for index, one in cards if one.state == "down"]


def bridged(vmi: VirtualMachineInstance) -> list[str]:
    """Return the interfaces with link whose guest has the pod's address itself, by QEMU's names."""
    cards = enumerate(vmi.spec.domain.devices.interfaces)
    return [
        _card(index)
        for index, one in cards
        if one.bridge is not None and one.state not in {"absent", "down"}
    ]


def _card(index: int) -> str:
    return f"nic{index}"


def _backend(domain: Domain, name: str, identifier: str) -> list[str]:
    if (tap := domain.handles.taps.get(name)) is not None:
        return option("netdev", type="tap", id=identifier, fd=str(tap))
    ranges = [
        one.pod.vm_network_cidr for one in domain.vmi.spec.networks if one.name == name and one.pod
    ]
    return option(
        "netdev",
        type="user",
        id=identifier,
        net=next((one for one in ranges if one), USER_NETWORK),
        ipv6=False,
        hostname=host_name(domain.vmi),
    )
