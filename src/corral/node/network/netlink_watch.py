"""Notifications of rtnetlink and nftables about removed links, addresses, routes and tables.

A notification is decoded only as far as needed to decide whether it is relevant: starting and
stopping machines causes thousands of them.
"""

import asyncio
import errno
import socket
import struct
from collections.abc import Callable
from typing import Final

from corral.node.network.namespace_nft_rules import OWN_LINKS, TABLE
from corral.node.network.netlink import NetworkError
from corral.node.network.netlink_messages import (
    NETLINK_NETFILTER,
    NETLINK_ROUTE,
    attributes,
    decode_messages,
)

_SOL_NETLINK, _NETLINK_ADD_MEMBERSHIP = 270, 1
(
    _RTNLGRP_LINK,
    _RTNLGRP_IPV4_IFADDR,
    _RTNLGRP_IPV4_ROUTE,
    _RTNLGRP_IPV6_IFADDR,
    _RTNLGRP_IPV6_ROUTE,
) = 1, 5, 7, 9, 11
_NFNLGRP_NFTABLES: Final = 7
_GROUPS: Final = {
    NETLINK_ROUTE: (
        _RTNLGRP_LINK,
        _RTNLGRP_IPV4_IFADDR,
        _RTNLGRP_IPV4_ROUTE,
        _RTNLGRP_IPV6_IFADDR,
        _RTNLGRP_IPV6_ROUTE,
    ),
    NETLINK_NETFILTER: (_NFNLGRP_NFTABLES,),
}
_RTM_NEWLINK, _RTM_DELLINK, _RTM_DELADDR, _RTM_DELROUTE = 16, 17, 21, 25
_NFT_MSG_DELTABLE: Final = 10 << 8 | 2
_NFT_MSG_DELETIONS: Final = frozenset(10 << 8 | kind for kind in (2, 5, 8))  # table, chain, rule
_IFF_UP: Final = 1
_LOOPBACK_INDEX: Final = 1  # in every namespace
_RTN_UNREACHABLE: Final = 7
_IFLA_IFNAME: Final = 3
_RTA_OIF: Final = 4
_TABLE_NAME: Final = 1  # NFTA_TABLE_NAME, NFTA_CHAIN_TABLE, NFTA_RULE_TABLE
_OWN_NAMES: Final = frozenset(each.encode() for each in OWN_LINKS)
_OWN_TABLE: Final = TABLE.split()[1].encode()
_RECEIVE_BYTES: Final = 1 << 16


def open_notification_sockets() -> list[socket.socket]:
    """Open sockets that receive notifications about the calling thread's namespace.

    Raises NetworkError.
    """
    sockets: list[socket.socket] = []
    try:
        for protocol, groups in _GROUPS.items():
            sockets.append(socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, protocol))
            sockets[-1].bind((0, 0))  # without it no notification arrives
            sockets[-1].setblocking(False)  # noqa: FBT003
            for group in groups:
                sockets[-1].setsockopt(_SOL_NETLINK, _NETLINK_ADD_MEMBERSHIP, group)
    except OSError as error:
        for each in sockets:
            each.close()
        raise NetworkError(
            f"the kernel's notifications cannot be received: {error.strerror}"
        ) from error
    return sockets


def watch(notifications: socket.socket, on_loss: Callable[[], None]) -> None:
    """Call ``on_loss`` for each relevant notification, until the socket is given to ``unwatch``.

    Also where the kernel has dropped notifications (ENOBUFS): a relevant one may be among them.
    """

    def read() -> None:
        try:
            while True:
                if any(
                    is_relevant(kind, body)
                    for kind, body in decode_messages(notifications.recv(_RECEIVE_BYTES))
                ):
                    on_loss()
        except BlockingIOError:
            return
        except OSError as error:
            if error.errno != errno.ENOBUFS:
                raise
            on_loss()

    asyncio.get_running_loop().add_reader(notifications, read)


def unwatch(notifications: socket.socket) -> None:
    """Stop watching a socket, and close it."""
    asyncio.get_running_loop().remove_reader(notifications)
    notifications.close()


def is_relevant(kind: int, body: bytes) -> bool:
    """Report whether a notification may be of something lost that the machine network needs."""
    if kind == _RTM_DELLINK:
        return _text(body[16:], _IFLA_IFNAME) in _OWN_NAMES
    if kind == _RTM_NEWLINK:
        _, _, index, flags = struct.unpack_from("=BxHiI", body)
        return index == _LOOPBACK_INDEX and not flags & _IFF_UP
    if kind == _RTM_DELADDR:
        return bool(struct.unpack_from("=4xI", body)[0] == _LOOPBACK_INDEX)
    if kind == _RTM_DELROUTE:
        device = _attribute(body[12:], _RTA_OIF)
        return body[7] == _RTN_UNREACHABLE or device == struct.pack("=I", _LOOPBACK_INDEX)
    table = _text(body[4:], _TABLE_NAME) if kind in _NFT_MSG_DELETIONS else b""
    return table == _OWN_TABLE or (kind == _NFT_MSG_DELTABLE and table.startswith(_OWN_TABLE))


def _text(remainder: bytes, type_: int) -> bytes:
    return _attribute(remainder, type_).rstrip(b"\0")


def _attribute(remainder: bytes, type_: int) -> bytes:
    """Return the value of an attribute; empty if the message has none."""
    return next((value for kind, value in attributes(remainder) if kind == type_), b"")
