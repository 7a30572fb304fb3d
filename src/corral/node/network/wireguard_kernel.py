"""WireGuard devices of the kernel, by generic netlink (linux/wireguard.h).

All functions act on the namespace of the calling thread.
"""

import errno
import socket
import struct
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from ipaddress import ip_address, ip_network
from sys import byteorder
from typing import Final

from corral.node.network.netlink import Network, NetworkError
from corral.node.network.netlink_messages import (
    NETLINK_GENERIC,
    NetlinkSocket,
    attribute,
    attributes,
    cstring,
    nested,
    u16,
    u32,
)
from corral.node.network.wireguard_plan import (
    Endpoint,
    PeerChange,
    WireguardChanges,
    WireguardPeer,
    WireguardState,
)

_GENERIC_HEADER: Final = struct.Struct("=BBxx")  # command, version
_GENL_ID_CTRL, _CTRL_CMD_GETFAMILY, _CTRL_VERSION = 16, 3, 2
_CTRL_ATTR_FAMILY_ID, _CTRL_ATTR_FAMILY_NAME = 1, 2
_FAMILY, _VERSION = "wireguard", 1
_WG_CMD_GET_DEVICE, _WG_CMD_SET_DEVICE = 0, 1
(
    _WGDEVICE_A_IFNAME,
    _WGDEVICE_A_PRIVATE_KEY,
    _WGDEVICE_A_LISTEN_PORT,
    _WGDEVICE_A_PEERS,
) = 2, 3, 6, 8
(
    _WGPEER_A_PUBLIC_KEY,
    _WGPEER_A_FLAGS,
    _WGPEER_A_ENDPOINT,
    _WGPEER_A_ALLOWEDIPS,
) = 1, 3, 4, 9
_WGPEER_F_REMOVE_ME, _WGPEER_F_REPLACE_ALLOWEDIPS = 1, 2
_WGALLOWEDIP_A_FAMILY, _WGALLOWEDIP_A_IPADDR, _WGALLOWEDIP_A_CIDR_MASK = 1, 2, 3
_ITEM: Final = 0
"""Type of an element of a list."""
_SOCKADDR_IN: Final = struct.Struct("!2x H 4s 8x")  # family (in the host's order), port, address
_SOCKADDR_IN6: Final = struct.Struct("!2x H 4x 16s 4x")
_FAMILIES: Final = {4: socket.AF_INET, 6: socket.AF_INET6}
_ADDRESSES_IN_A_MESSAGE: Final = 1000
"""Most allowed IPs of a message: the length of an attribute has 16 bits."""


class KernelDevice:
    """A WireGuard device of the calling thread's namespace, by its name."""

    def __init__(self, name: str) -> None:
        self._name = name

    def read(self) -> WireguardState:
        """Return its configuration.  Raises NetworkError."""
        with _failure(f"the device {self._name} cannot be read"), _opened() as (netlink, family):
            body = _header(_WG_CMD_GET_DEVICE) + attribute(_WGDEVICE_A_IFNAME, cstring(self._name))
            return decode_state(netlink.dump(family, body))

    def write(self, changes: WireguardChanges) -> None:
        """Change its configuration.  Raises NetworkError."""
        with _failure(f"the device {self._name} cannot be set"), _opened() as (netlink, family):
            for body in encode_changes(self._name, changes):
                netlink.request(family, body)


def is_in_kernel() -> bool:
    """Report whether the kernel has WireGuard; it loads its module if necessary.

    Raises NetworkError.
    """
    with _failure("the kernel cannot be asked for WireGuard"), _socket() as netlink:
        return _family(netlink) is not None


def encode_changes(name: str, changes: WireguardChanges) -> Iterator[bytes]:
    """Return the bodies of the requests that change a device."""
    device = _header(_WG_CMD_SET_DEVICE) + attribute(_WGDEVICE_A_IFNAME, cstring(name))
    own = b""
    if changes.private_key is not None:
        own += attribute(_WGDEVICE_A_PRIVATE_KEY, changes.private_key)
    if changes.port is not None:
        own += attribute(_WGDEVICE_A_LISTEN_PORT, u16(changes.port))
    if own:
        yield device + own
    for change in changes.peers:
        for peer in _peers(change):
            yield device + nested(_WGDEVICE_A_PEERS, nested(_ITEM, *peer))


def decode_state(bodies: Iterable[bytes]) -> WireguardState:
    """Return the configuration in the messages of a dump; a peer may continue in the next one."""
    private_key, port = b"", 0
    peers: dict[bytes, WireguardPeer] = {}
    for body in bodies:
        for type_, value in attributes(body[_GENERIC_HEADER.size :]):
            if type_ == _WGDEVICE_A_PRIVATE_KEY:
                private_key = value
            elif type_ == _WGDEVICE_A_LISTEN_PORT:
                port = int.from_bytes(value, byteorder)
            elif type_ == _WGDEVICE_A_PEERS:
                for _, each in attributes(value):
                    key, peer = _decode_peer(each)
                    before = peers.get(key, peer)
                    endpoint = peer.endpoint or before.endpoint
                    peers[key] = WireguardPeer(endpoint, before.allowed | peer.allowed)
    return WireguardState(private_key, port, peers)


def _peers(change: PeerChange) -> Iterator[Sequence[bytes]]:
    """Return the attributes of a peer, in parts that fit into a message each."""
    key = attribute(_WGPEER_A_PUBLIC_KEY, change.key)
    if change.removes:
        yield key, attribute(_WGPEER_A_FLAGS, u32(_WGPEER_F_REMOVE_ME))
        return
    first = [key]
    if change.replaces:
        first.append(attribute(_WGPEER_A_FLAGS, u32(_WGPEER_F_REPLACE_ALLOWEDIPS)))
    if change.endpoint is not None:
        first.append(attribute(_WGPEER_A_ENDPOINT, _encode_endpoint(change.endpoint)))
    count = _ADDRESSES_IN_A_MESSAGE
    for start in range(0, max(len(change.allowed), 1), count):
        allowed = map(_allowed, change.allowed[start : start + count])
        yield *(first if start == 0 else [key]), nested(_WGPEER_A_ALLOWEDIPS, *allowed)


def _allowed(cidr: Network) -> bytes:
    return nested(
        _ITEM,
        attribute(_WGALLOWEDIP_A_FAMILY, u16(_FAMILIES[cidr.version])),
        attribute(_WGALLOWEDIP_A_IPADDR, cidr.network_address.packed),
        attribute(_WGALLOWEDIP_A_CIDR_MASK, bytes([cidr.prefixlen])),
    )


def _encode_endpoint(endpoint: Endpoint) -> bytes:
    """Return a struct sockaddr_in or sockaddr_in6."""
    layout = _SOCKADDR_IN if endpoint.address.version == 4 else _SOCKADDR_IN6
    packed = layout.pack(endpoint.port, endpoint.address.packed)
    return u16(_FAMILIES[endpoint.address.version]) + packed[2:]


def _decode_endpoint(value: bytes) -> Endpoint | None:
    family = int.from_bytes(value[:2], byteorder)
    for version, layout in ((4, _SOCKADDR_IN), (6, _SOCKADDR_IN6)):
        if family == _FAMILIES[version] and len(value) >= layout.size:
            port, packed = layout.unpack_from(value)
            return Endpoint(ip_address(packed), port)
    return None


def _decode_peer(body: bytes) -> tuple[bytes, WireguardPeer]:
    values = dict(attributes(body))
    allowed = [
        dict(attributes(each)) for _, each in attributes(values.get(_WGPEER_A_ALLOWEDIPS, b""))
    ]
    return values[_WGPEER_A_PUBLIC_KEY], WireguardPeer(
        _decode_endpoint(values.get(_WGPEER_A_ENDPOINT, b"")),
        frozenset(
            ip_network((each[_WGALLOWEDIP_A_IPADDR], each[_WGALLOWEDIP_A_CIDR_MASK][0]))
            for each in allowed
        ),
    )


@contextmanager
def _opened() -> Iterator[tuple[NetlinkSocket, int]]:
    """Open a socket, and find the number of WireGuard's family.  Raises OSError."""
    with _socket() as netlink:
        family = _family(netlink)
        if family is None:
            raise OSError(errno.ENOENT, "the kernel has no WireGuard any more")
        yield netlink, family


def _socket() -> NetlinkSocket:
    return NetlinkSocket(NETLINK_GENERIC)


def _family(netlink: NetlinkSocket) -> int | None:
    """Return the number of WireGuard's family; None if the kernel does not have it."""
    body = _GENERIC_HEADER.pack(_CTRL_CMD_GETFAMILY, _CTRL_VERSION)
    body += attribute(_CTRL_ATTR_FAMILY_NAME, cstring(_FAMILY))
    try:
        answers = netlink.query(_GENL_ID_CTRL, body)
    except FileNotFoundError:
        return None
    for each in answers:
        values = dict(attributes(each[_GENERIC_HEADER.size :]))
        return int.from_bytes(values[_CTRL_ATTR_FAMILY_ID], byteorder)
    return None


def _header(command: int) -> bytes:
    return _GENERIC_HEADER.pack(command, _VERSION)


@contextmanager
def _failure(what: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise NetworkError(f"{what}: {error.strerror or error}") from error
