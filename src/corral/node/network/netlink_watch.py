"""Tells when something is removed from a namespace, in the kernel's own notices (rtnetlink(7)).

Notices are read as far as they must be to know whether they matter: thousands pass by while
machines come and go.
"""

import asyncio
import errno
import socket
import struct
from collections.abc import Callable
from typing import Final

from corral.node.network.messages import NETFILTER, ROUTE, attributes, messages
from corral.node.network.namespace_nft_rules import OWN_LINKS, TABLE
from corral.node.network.netlink import NetworkError

_SOL_NETLINK, _ADD_MEMBERSHIP = 270, 1
_LINK, _IPV4_ADDRESS, _IPV4_ROUTE, _IPV6_ADDRESS, _IPV6_ROUTE = 1, 5, 7, 9, 11
_NFTABLES: Final = 7
_GROUPS: Final = {
    ROUTE: (_LINK, _IPV4_ADDRESS, _IPV4_ROUTE, _IPV6_ADDRESS, _IPV6_ROUTE),
    NETFILTER: (_NFTABLES,),
}
_NEW_LINK, _DELETED_LINK, _DELETED_ADDRESS, _DELETED_ROUTE = 16, 17, 21, 25
_DELETED_TABLE: Final = 10 << 8 | 2
_DELETED_RULES: Final = frozenset(10 << 8 | kind for kind in (2, 5, 8))  # table, chain, rule
_UP: Final = 1  # IFF_UP
_LOOPBACK: Final = 1  # its index, in every namespace
_UNREACHABLE: Final = 7  # RTN_UNREACHABLE
_NAME: Final = 3  # IFLA_IFNAME
_DEVICE: Final = 4  # RTA_OIF
_TABLE_NAME: Final = 1  # NFTA_TABLE_NAME, NFTA_CHAIN_TABLE, NFTA_RULE_TABLE
_OWN_NAMES: Final = frozenset(each.encode() for each in OWN_LINKS)
_OWN_TABLE: Final = TABLE.split()[1].encode()
_LARGEST: Final = 1 << 16


def notices() -> list[socket.socket]:
    """Sockets at which the kernel tells of the calling thread's namespace.  Raises NetworkError."""
    made: list[socket.socket] = []
    try:
        for protocol, groups in _GROUPS.items():
            made.append(socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, protocol))
            made[-1].bind((0, 0))  # without it nothing is told
            made[-1].setblocking(False)  # noqa: FBT003
            for group in groups:
                made[-1].setsockopt(_SOL_NETLINK, _ADD_MEMBERSHIP, group)
    except OSError as error:
        for each in made:
            each.close()
        raise NetworkError(f"the kernel's notices cannot be had: {error.strerror}") from error
    return made


def follow(told: socket.socket, lost: Callable[[], None]) -> None:
    """Call something when a notice tells that something of the network's own may be lost.

    So does it where notices were lost.  Until the socket is given to ``leave``.
    """

    def read() -> None:
        try:
            while True:
                if any(matters(kind, body) for kind, body in messages(told.recv(_LARGEST))):
                    lost()
        except BlockingIOError:
            return
        except OSError as error:
            if error.errno != errno.ENOBUFS:
                raise
            lost()

    asyncio.get_running_loop().add_reader(told, read)


def leave(told: socket.socket) -> None:
    """Follow a socket no more, and close it."""
    asyncio.get_running_loop().remove_reader(told)
    told.close()


def matters(kind: int, body: bytes) -> bool:
    """Whether a message tells that something may be lost which the network itself needs."""
    if kind == _DELETED_LINK:
        return _text(body[16:], _NAME) in _OWN_NAMES
    if kind == _NEW_LINK:
        _, _, index, flags = struct.unpack_from("=BxHiI", body)
        return index == _LOOPBACK and not flags & _UP
    if kind == _DELETED_ADDRESS:
        return bool(struct.unpack_from("=4xI", body)[0] == _LOOPBACK)
    if kind == _DELETED_ROUTE:
        device = _attribute(body[12:], _DEVICE)
        return body[7] == _UNREACHABLE or device == struct.pack("=I", _LOOPBACK)
    table = _text(body[4:], _TABLE_NAME) if kind in _DELETED_RULES else b""
    return table == _OWN_TABLE or (kind == _DELETED_TABLE and table.startswith(_OWN_TABLE))


def _text(remainder: bytes, wanted: int) -> bytes:
    return _attribute(remainder, wanted).rstrip(b"\0")


def _attribute(remainder: bytes, wanted: int) -> bytes:
    """The content of an attribute; empty where there is none."""
    return next((value for kind, value in attributes(remainder) if kind == wanted), b"")
