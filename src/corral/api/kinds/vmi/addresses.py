"""Hardware and network addresses that follow from an instance, the same whenever it is started."""

import hashlib
from ipaddress import IPv4Network

from corral.api.kinds.vmi.networks import Interface
from corral.api.kinds.vmi.saved_memory import identity
from corral.api.kinds.vmi.vmi import VirtualMachineInstance

USER_NETWORK = "10.0.2.0/24"
"""KubeVirt's default for a guest's private range (PodNetwork.vmNetworkCIDR)."""
POD_INTERFACE = "eth0"
"""The name of a pod's own end of its link."""

_LEASED_FIRST = 15  # by the DHCP server of QEMU's user network


def mac(uid: str, interface: str) -> str:
    """A hardware address for an interface that names none: local, unicast."""
    digest = hashlib.blake2b(f"{uid}/{interface}".encode(), digest_size=5).hexdigest()
    return ":".join(("02", *(digest[at : at + 2] for at in range(0, 10, 2))))


def mac_of(vmi: VirtualMachineInstance, interface: Interface) -> str:
    """The hardware address of a card: as asked for, else one that follows from the instance."""
    given = interface.mac_address.replace("-", ":").lower()
    return given or mac(identity(vmi), interface.name)


def guest_address(network: str = USER_NETWORK) -> str:
    """What QEMU's DHCP server gives to the guest of a user network."""
    return str(IPv4Network(network)[_LEASED_FIRST])
