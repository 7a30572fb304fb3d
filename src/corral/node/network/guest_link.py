"""The guest's side of a pod's namespace: bridge, tap, rules and DHCP behind the pod's interface.

``pod_layout`` plans it.  The pod's interface is a link of ours (``pod_network``) or that of a CNI
plugin (``cni``).
"""

import fcntl
import os
import struct
from collections.abc import Callable, Iterable
from typing import TypeVar, TypeVarTuple

import structlog

from corral.node.network import dhcp, netlink, nft
from corral.node.network.namespaces import Namespace
from corral.node.network.netlink import SYSCTL, Netlink, NetworkError
from corral.node.network.pod_layout import GuestLayout, LinkConfig

TUN = "/dev/net/tun"
_TUNSETIFF = 0x400454CA
_IFF_TAP, _IFF_NO_PI, _IFF_VNET_HDR = 0x0002, 0x1000, 0x4000  # linux/if_tun.h

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

log = structlog.get_logger()


class PodNetwork:
    """The network of one pod, while its VMI runs.

    ``taps``: descriptors of the guest's tap devices, by the name of the interface; QEMU inherits
    them.  After a restart of the manager only QEMU has them.
    """

    def __init__(self, namespace: Namespace, layout: GuestLayout) -> None:
        self.taps: dict[str, int] = {}
        self.responder = dhcp.Responder(layout.nic.dhcp_link) if layout.nic is not None else None
        self._namespace = namespace
        self._is_responding = False

    async def call(self, function: Callable[[*Ts], T], *arguments: *Ts) -> T:
        """Call a function in a thread in the pod's namespace."""
        return await self._namespace.call(function, *arguments)

    def duplicate_namespace(self) -> Namespace:
        """Return its namespace with a descriptor of its own, which outlives ``close``."""
        return Namespace(os.dup(self._namespace.descriptor))

    def start_responder(self) -> None:
        """Start to answer the guest's DHCP requests and router solicitations."""
        if self.responder is not None and not self._is_responding:
            self._is_responding = True
            self.responder.start()

    def close(self) -> None:
        """Close the descriptors; the namespace goes once QEMU has ended as well."""
        if self.responder is not None:
            self.responder.close()
        for descriptor in self.taps.values():
            os.close(descriptor)
        self.taps.clear()
        self._namespace.close()


# -- Functions for threads in the pod's namespace.


def ensure_bridge(links: Netlink, layout: GuestLayout) -> None:
    """Create the guest's bridge, with its addresses."""
    set_sysctls(layout.pod_sysctls)
    if layout.nic is not None:
        bridge = layout.nic.bridge
        links.add_bridge(bridge.name, mac=bridge.mac, mtu=layout.mtu)
        configure_link(links, bridge)


def open_guest_end(links: Netlink, network: PodNetwork, layout: GuestLayout) -> None:
    """Create the guest's tap, with its rules, and open the DHCP responder."""
    nic = layout.nic
    if nic is not None:
        network.taps[nic.name] = open_tap(nic.tap)
        links.change(nic.tap, master=nic.bridge.name, mtu=layout.mtu)
        nft.apply(layout.rules)
    if network.responder is not None:
        network.responder.open()


def repair_guest_end(links: Netlink, layout: GuestLayout) -> None:
    """Restore the rules of a guest that runs; only QEMU has its tap."""
    nft.apply(layout.replacement_rules)
    if layout.nic is not None and not links.index(layout.nic.tap):
        log.warning("the tap of a network interface was removed: restart the VM to get a new one")


def configure_link(links: Netlink, config: LinkConfig) -> None:
    """Add the addresses, neighbours and routes of a link."""
    for address in config.addresses:
        links.add_address(config.name, address)
    for neighbour, mac in config.neighbours:
        links.add_neighbour(config.name, neighbour, mac)
    for destination, router in config.routes:
        links.add_route(destination, link=config.name, via=router)


def set_sysctls(settings: Iterable[tuple[str, int]]) -> None:
    """Set sysctls, as far as this kernel has them."""
    for name, value in settings:
        if (SYSCTL / name).exists():
            netlink.set_sysctl(name, value)


def open_tap(name: str) -> int:
    """Create a tap device in the calling thread's namespace; return its descriptor."""
    try:
        descriptor = os.open(TUN, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise NetworkError(f"{TUN} cannot be opened: {error.strerror}") from error
    try:
        flags = _IFF_TAP | _IFF_NO_PI | _IFF_VNET_HDR
        fcntl.ioctl(descriptor, _TUNSETIFF, struct.pack("16sH22x", name.encode(), flags))
    except OSError as error:
        os.close(descriptor)
        raise NetworkError(f"the device {name} cannot be created: {error.strerror}") from error
    return descriptor
