"""Hardware and network addresses that follow from an instance, the same whenever it is started."""

import hashlib
from ipaddress import IPv4Network

USER_NETWORK = "10.0.2.0/24"
"""KubeVirt's default for a guest's private range (PodNetwork.vmNetworkCIDR)."""

_LEASED_FIRST = 15  # by the DHCP server of QEMU's user network


def mac(uid: str, interface: str) -> str:
    """A hardware address for an interface that names none: local, unicast."""
    digest = hashlib.blake2b(f"{uid}/{interface}".encode(), digest_size=5).hexdigest()
    return ":".join(("02", *(digest[at : at + 2] for at in range(0, 10, 2))))


def guest_address(network: str = USER_NETWORK) -> str:
    """What QEMU's DHCP server gives to the guest of a user network."""
    return str(IPv4Network(network)[_LEASED_FIRST])
