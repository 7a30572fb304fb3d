"""The kernel's connection tracking table: finds flows, and deletes stale ones.

Uses nfnetlink directly: a node has tens of thousands of connections, the kernel filters the few
relevant ones, and decoding all attributes of each with a library takes milliseconds per entry.
Acts on the namespace of the calling thread: call it through ``Namespace.run`` or ``call``.
"""

import errno
import socket
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Final

from corral.node.network.netlink import Address, NetworkError
from corral.node.network.netlink_messages import (
    NETLINK_NETFILTER,
    NetlinkSocket,
    attribute,
    attributes,
    nested,
    u32,
)

PROTOCOLS: Final = {"udp": 17, "tcp": 6}
"""The protocols whose flows are deleted, and their numbers.

UDP first: its flows last while clients send.
"""

_NFNL_SUBSYS_CTNETLINK: Final = 1 << 8
_IPCTNL_MSG_CT_GET, _IPCTNL_MSG_CT_DELETE = 1, 2

# Attributes, by linux/netfilter/nfnetlink_conntrack.h.
(
    _CTA_TUPLE_ORIG,
    _CTA_TUPLE_REPLY,
    _CTA_STATUS,
    _CTA_PROTOINFO,
    _CTA_ID,
    _CTA_FILTER,
    _CTA_STATUS_MASK,
) = 1, 2, 3, 4, 12, 25, 26
_IPS_ASSURED: Final = 1 << 2
"""Bit of the status; of TCP: the handshake was completed."""
_CTA_PROTOINFO_TCP = _CTA_PROTOINFO_TCP_STATE = 1
_TCP_CONNTRACK_SYN_SENT, _TCP_CONNTRACK_CLOSE = 1, 8
_CTA_TUPLE_IP, _CTA_TUPLE_PROTO = 1, 2
_CTA_IP_SRC, _CTA_IP_DST = {4: 1, 6: 3}, {4: 2, 6: 4}
_CTA_PROTO_NUM, _CTA_PROTO_SRC_PORT, _CTA_PROTO_DST_PORT = 1, 2, 3
_CTA_FILTER_ORIG_FLAGS: Final = 1
_FILTER_PROTO_NUM, _FILTER_PROTO_DST_PORT = 1 << 3, 1 << 5

_NFGENMSG: Final = struct.Struct("!BBH")
_FAMILIES: Final = {4: socket.AF_INET, 6: socket.AF_INET6}

Attributes = Mapping[int, bytes]


@dataclass(frozen=True, slots=True)
class Flow:
    """A tracked connection as its client sees it, and the pod that replies.

    ``handle`` identifies it to the kernel.

    ``is_unanswered``: of TCP, nobody has replied, or the connection was reset.
    """

    protocol: str
    destination: Address
    destination_port: int
    replier: Address
    replier_port: int
    is_unanswered: bool
    handle: bytes


def delete_flows(
    is_stale: Callable[[Flow], bool],
    *,
    version: int,
    protocol: str,
    port: int | None = None,
) -> int:
    """Delete the flows of a protocol for which ``is_stale`` holds; return their number.

    ``port``: only those to this port.  Of TCP only those that are not established
    (``Flow.is_unanswered``).  The next packet of a deleted flow is translated as that of a new one.
    Raises NetworkError.
    """
    try:
        with NetlinkSocket(NETLINK_NETFILTER) as netlink:
            filter_attributes = _filter(protocol, port)
            found = [
                flow
                for flow in _flows(netlink, version, protocol, filter_attributes)
                if protocol != "tcp" or flow.is_unanswered
                if is_stale(flow)
            ]
            for flow in found:
                _delete(netlink, version, flow)
            return len(found)
    except OSError as error:
        raise NetworkError(f"flows cannot be deleted: {error.strerror or error}") from error


def _filter(protocol: str, port: int | None) -> bytes:
    """Return the attributes by which the kernel filters a dump (Linux 5.8).

    The address is not among them: for IPv6 the kernel returns the flows with any other address.
    """
    flags = _FILTER_PROTO_NUM
    transport = attribute(_CTA_PROTO_NUM, bytes([PROTOCOLS[protocol]]))
    if port is not None:
        flags |= _FILTER_PROTO_DST_PORT
        transport += attribute(_CTA_PROTO_DST_PORT, struct.pack("!H", port))
    original = nested(_CTA_TUPLE_IP, b"") + nested(_CTA_TUPLE_PROTO, transport)
    flags_attribute = attribute(_CTA_FILTER_ORIG_FLAGS, u32(flags))
    filter_attributes = nested(_CTA_TUPLE_ORIG, original) + nested(_CTA_FILTER, flags_attribute)
    if protocol == "tcp":  # Linux before 5.18 ignores it, and returns all
        none, mask = struct.pack("!I", 0), struct.pack("!I", _IPS_ASSURED)
        filter_attributes += attribute(_CTA_STATUS, none) + attribute(_CTA_STATUS_MASK, mask)
    return filter_attributes


def _flows(
    netlink: NetlinkSocket, version: int, protocol: str, filter_attributes: bytes
) -> Iterator[Flow]:
    for body in netlink.dump(
        _NFNL_SUBSYS_CTNETLINK | _IPCTNL_MSG_CT_GET, _body(version, filter_attributes)
    ):
        values = dict(attributes(body[_NFGENMSG.size :]))
        original, reply = _tuple(values[_CTA_TUPLE_ORIG]), _tuple(values[_CTA_TUPLE_REPLY])
        yield Flow(
            protocol,
            _address(original[_CTA_TUPLE_IP], _CTA_IP_DST[version]),
            _port(original[_CTA_TUPLE_PROTO], _CTA_PROTO_DST_PORT),
            _address(reply[_CTA_TUPLE_IP], _CTA_IP_SRC[version]),
            _port(reply[_CTA_TUPLE_PROTO], _CTA_PROTO_SRC_PORT),
            _state(values.get(_CTA_PROTOINFO, b""))
            in (_TCP_CONNTRACK_SYN_SENT, _TCP_CONNTRACK_CLOSE),
            nested(_CTA_TUPLE_ORIG, values[_CTA_TUPLE_ORIG]) + attribute(_CTA_ID, values[_CTA_ID]),
        )


def _state(details: bytes) -> int:
    """Return the TCP state by linux/netfilter/nf_conntrack_tcp.h; 0 for other protocols."""
    tcp = dict(attributes(details)).get(_CTA_PROTOINFO_TCP, b"")
    return int.from_bytes(dict(attributes(tcp)).get(_CTA_PROTOINFO_TCP_STATE, b""), "big")


def _delete(netlink: NetlinkSocket, version: int, flow: Flow) -> None:
    """Delete one flow; one that has ended, or was replaced, needs no deletion."""
    try:
        netlink.request(_NFNL_SUBSYS_CTNETLINK | _IPCTNL_MSG_CT_DELETE, _body(version, flow.handle))
    except OSError as error:
        if error.errno != errno.ENOENT:
            raise


def _body(version: int, fields: bytes) -> bytes:
    return _NFGENMSG.pack(_FAMILIES[version], 0, 0) + fields


def _tuple(text: bytes) -> Mapping[int, Attributes]:
    return {kind: dict(attributes(value)) for kind, value in attributes(text)}


def _address(values: Attributes, kind: int) -> Address:
    return ip_address(values[kind])


def _port(values: Attributes, kind: int) -> int:
    return int.from_bytes(values.get(kind, b""), "big")
