"""The backend ``wireguard``: an encrypting device that leads to the pod ranges of other hosts.

It follows flannel's wireguard backend: one device for each host, whose peers are the other hosts,
each with its pod ranges as allowed IPs.  The device lies in the machine namespace, so that all
packets pass its packet filter; its outer packets go through the host's namespace.  It is the
kernel's, or that of wireguard-go where the kernel has none.
"""

import os
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from socket import AF_INET, AF_INET6, SOCK_DGRAM, has_dualstack_ipv6, socket
from typing import Final, Protocol

from corral.config import WIREGUARD_PORT
from corral.node.network import host_gateway, netlink, wireguard_kernel, wireguard_userspace
from corral.node.network.host_gateway import inner_alias, link_with
from corral.node.network.namespace_nft_rules import OVERLAY_LINK
from corral.node.network.namespaces import Namespace
from corral.node.network.netlink import Address, Network, NetworkError
from corral.node.network.peers import Peer
from corral.node.network.pod_routes import (
    guarded,
    local_addresses,
    next_hops,
    sync_addresses,
    sync_routes,
)
from corral.node.network.wireguard_kernel import KernelDevice
from corral.node.network.wireguard_plan import (
    WireguardChanges,
    WireguardState,
    desired_peers,
    plan,
)
from corral.node.network.wireguard_userspace import PADDING_BYTES, WireguardGo

HEADER_BYTES: Final = {4: 60, 6: 80}
"""Bytes that encapsulation adds to a packet, by the IP version of the hosts' addresses."""
_KERNEL: Final = "corral wireguard"
_USERSPACE: Final = "corral wireguard-go"
"""Aliases of the device, by its kind; those of other backends are others."""


class _Device(Protocol):
    def read(self) -> WireguardState: ...

    def write(self, changes: WireguardChanges) -> None: ...


class Wireguard:
    """The WireGuard device of a machine namespace; ``directory`` has the state of its network.

    ``address`` is this host's on the way to others, ``port`` the UDP port there; ``key``,
    ``public_key`` are this host's.
    """

    def __init__(
        self,
        directory: Path,
        machines: Namespace,
        *,
        address: Address,
        pod_cidrs: Sequence[Network],
        key: bytes,
        public_key: bytes,
        port: int = WIREGUARD_PORT,
    ) -> None:
        self._directory = directory
        self._machines = machines
        self._host = Namespace.current()
        self._address = address
        self._versions = {each.version for each in pod_cidrs}
        self._key, self._public_key = key, public_key
        self._port = port
        self._process = WireguardGo(directory, host=self._host)

    async def apply(
        self,
        own: Peer,
        peers: Mapping[Address, Peer],
        gone: Collection[Peer] = (),
        left: Collection[Network] = (),
    ) -> None:
        """Sync the device, its peers, addresses and routes.  Raises NetworkError.

        No packet leaves for a host without a key.
        """
        del gone  # peers are compared with those that are there
        device = await self._ensure_device()
        known = [each.of(self._versions) for each in peers.values()]
        encrypted = [each for each in known if each.key not in (None, self._public_key)]
        await self._machines.call(self._apply, device, own.of(self._versions), encrypted, left)
        if keyless := sorted(str(each.address) for each in known if each not in encrypted):
            raise NetworkError(
                f"{', '.join(keyless)} has no WireGuard key of its own, so nothing leads there",
                "Start corral there again: hosts follow the first one's --network-backend then.",
            )

    async def _ensure_device(self) -> _Device:
        """Return the device, created unless it is there."""
        alias = await self._machines.call(inner_alias)
        if alias == _KERNEL:
            return KernelDevice(OVERLAY_LINK)
        if alias == _USERSPACE:
            process = await self._process.find()
            if process is not None and self._process.is_running:
                return self._process.device(process)
        await self._host.call(host_gateway.remove_links, self._directory, self._machines)
        await self._process.end()
        kind = await self._host.call(require_support)
        await self._host.call(_require_port, self._port)
        if kind == _KERNEL:
            await self._host.call(self._create_in_kernel)
            return KernelDevice(OVERLAY_LINK)
        return await self._start_process()

    def _mtu(self, link: netlink.Netlink) -> int:
        """On the host: return the largest packet that fits into one of the link to other hosts."""
        return link_with(link, self._address).mtu - HEADER_BYTES[self._address.version]

    def _create_in_kernel(self) -> None:
        """On the host: create the device inside the machine namespace."""
        with netlink.opened() as link:
            link.add_wireguard(
                OVERLAY_LINK, mtu=self._mtu(link), namespace=self._machines.descriptor
            )
        self._machines.run(_name_kind, _KERNEL)

    async def _start_process(self) -> _Device:
        """Start wireguard-go, and move its device to the machine namespace."""
        process = await self._process.ensure()
        device = self._process.device(process)
        try:
            await self._host.call(device.read)  # it answers once its device is there
        except NetworkError as error:
            raise NetworkError(error.message, f"Its output: {self._process.output}") from error
        await self._host.call(self._move)
        return device

    def _move(self) -> None:
        with netlink.opened() as link:
            link.move(
                self._process.name,
                self._machines.descriptor,
                rename=OVERLAY_LINK,
                mtu=self._mtu(link) - PADDING_BYTES,
            )
        self._machines.run(_name_kind, _USERSPACE)

    def _apply(
        self,
        device: _Device,
        own: Peer,
        peers: Sequence[Peer],
        left: Collection[Network],
    ) -> None:
        """In the machine namespace: sync peers, addresses and routes; delete stale ones."""
        with netlink.opened() as link:
            local = local_addresses(link, self._versions, left)
            desired = WireguardState(
                self._key, self._port, desired_peers(peers, local, own_key=self._public_key)
            )
            if changes := plan(device.read(), desired):
                device.write(changes)
            link.change(OVERLAY_LINK)
            sync_addresses(link, own.ranges)
            routes = next_hops(peers, local)
            sync_routes(link, routes, guards=guarded(own), left=left, versions=self._versions)


def require_support() -> str:
    """Return the kind of the device that this host can have.  Raises NetworkError if none."""
    if os.geteuid() != 0:
        raise NetworkError(
            "the network backend wireguard needs root",
            "Run corral as root, or choose another --network-backend in corral up.",
        )
    if wireguard_kernel.is_in_kernel():
        return _KERNEL
    if wireguard_userspace.is_installed():
        return _USERSPACE
    raise NetworkError(
        "the network backend wireguard finds no WireGuard: this kernel has no module wireguard, "
        "and wireguard-go is not installed",
        "Install one: apt-get install wireguard-go, or a kernel with the module (Linux 5.6 and "
        "later). Or choose another --network-backend in corral up, which does not encrypt.",
    )


def _require_port(port: int) -> None:
    """On the host: raise NetworkError if another program has the port.

    wireguard-go would not say so.
    """
    try:
        with socket(AF_INET6 if has_dualstack_ipv6() else AF_INET, SOCK_DGRAM) as probe:
            probe.bind(("", port))
    except OSError as error:
        raise NetworkError(
            f"UDP port {port} of this host cannot be used for WireGuard: {error.strerror}",
            "Another WireGuard may have it: choose another with --wireguard-port.",
        ) from error


def _name_kind(alias: str) -> None:
    with netlink.opened() as link:
        link.change(OVERLAY_LINK, up=False, alias=alias)
