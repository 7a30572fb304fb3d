"""MAC and guest addresses derived from a VMI, so that they are the same at every start."""

import hashlib
from ipaddress import IPv4Network

from corral.api.kinds.vmi.networks import Interface
from corral.api.kinds.vmi.saved_memory import identity
from corral.api.kinds.vmi.vmi import VirtualMachineInstance

USER_NETWORK = "10.0.2.0/24"
"""KubeVirt's default for a guest's private range (PodNetwork.vmNetworkCIDR)."""
POD_INTERFACE = "eth0"
"""The name of a pod's own end of its link."""

_FIRST_LEASE = 15  # host number that the DHCP server of QEMU's user network leases first


def mac(uid: str, interface: str) -> str:
    """Return a MAC address (locally administered, unicast) for an interface that names none."""
    digest = hashlib.blake2b(f"{uid}/{interface}".encode(), digest_size=5).hexdigest()
    return ":".join(("02", *(digest[at : at + 2] for at in range(0, 10, 2))))


def mac_of(vmi: VirtualMachineInstance, interface: Interface) -> str:
    """Return the MAC address of an interface: as specified, else derived from the VMI."""
    specified = interface.mac_address.replace("-", ":").lower()
    return specified or mac(identity(vmi), interface.name)


def guest_address(network: str = USER_NETWORK) -> str:
    """Return the address that QEMU's DHCP server leases to the guest of a user network."""
    return str(IPv4Network(network)[_FIRST_LEASE])
