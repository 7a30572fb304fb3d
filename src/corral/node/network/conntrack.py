"""The kernel's table of connections: finds those to a port, and forgets some of them.

Speaks nfnetlink's few messages itself: a machine has tens of thousands of connections, the kernel
picks the few that are meant, and whatever decodes all of what it says of each takes milliseconds a
piece.  Acts on the namespace of the calling thread: call it through ``Namespace.run`` or ``call``.
"""

import errno
import socket
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Final

from corral.node.network.messages import (
    NETFILTER,
    Conversation,
    attribute,
    attributes,
    nested,
    number,
)
from corral.node.network.netlink import Address, NetworkError

PROTOCOLS: Final = {"udp": 17, "tcp": 6}
"""Those whose flows are forgotten, and their numbers: UDP's first, which last while a client
asks."""

_TABLE: Final = 1 << 8  # NFNL_SUBSYS_CTNETLINK
_GET, _DELETE = 1, 2

# Attributes, by linux/netfilter/nfnetlink_conntrack.h.
_ORIGINAL, _REPLY, _STATUS, _DETAILS, _ID, _FILTER, _STATUS_MASK = 1, 2, 3, 4, 12, 25, 26
_ASSURED: Final = 1 << 2
"""Bit of a status; of TCP: a handshake was seen to its end."""
_TCP = _STATE = 1
_SYN_SENT, _CLOSE = 1, 8
_IP, _PROTOCOL = 1, 2
_SOURCE, _DESTINATION = {4: 1, 6: 3}, {4: 2, 6: 4}
_NUMBER, _SOURCE_PORT, _DESTINATION_PORT = 1, 2, 3
_FILTER_ORIGINAL: Final = 1
_BY_PROTOCOL, _BY_PORT = 1 << 3, 1 << 5

_FAMILY: Final = struct.Struct("!BBH")
_FAMILIES: Final = {4: socket.AF_INET, 6: socket.AF_INET6}

Attributes = Mapping[int, bytes]


@dataclass(frozen=True, slots=True)
class Flow:
    """A connection as its client sees it, and who answers it.  ``handle`` is the kernel's.

    ``is_vain``: of TCP, nobody has answered, or somebody has broken it off.
    """

    protocol: str
    destination: Address
    destination_port: int
    answerer: Address
    answerer_port: int
    is_vain: bool
    handle: bytes


def forget_flows(
    is_stale: Callable[[Flow], bool],
    *,
    version: int,
    protocol: str,
    port: int | None = None,
) -> int:
    """Forget the flows of a protocol, to one port or to any, that a predicate picks.

    Of TCP only those that are no connections (``Flow.is_vain``).
    Answers how many.  The next packet of such a flow is led as a new one's.  Raises NetworkError.
    """
    try:
        with Conversation(NETFILTER) as kernel:
            wanted = _pick(protocol, port)
            found = [
                flow
                for flow in _flows(kernel, version, protocol, wanted)
                if protocol != "tcp" or flow.is_vain
                if is_stale(flow)
            ]
            for flow in found:
                _forget(kernel, version, flow)
            return len(found)
    except OSError as error:
        raise NetworkError(f"flows cannot be forgotten: {error.strerror or error}") from error


def _pick(protocol: str, port: int | None) -> bytes:
    """The attributes by which the kernel picks flows (Linux 5.8).

    An address is not among them: of IPv6 the kernel picks those that have any other one.
    """
    flags = _BY_PROTOCOL
    transport = attribute(_NUMBER, bytes([PROTOCOLS[protocol]]))
    if port is not None:
        flags |= _BY_PORT
        transport += attribute(_DESTINATION_PORT, struct.pack("!H", port))
    original = nested(_IP, b"") + nested(_PROTOCOL, transport)
    picked = attribute(_FILTER_ORIGINAL, number(flags))
    wanted = nested(_ORIGINAL, original) + nested(_FILTER, picked)
    if protocol == "tcp":  # Linux before 5.18 tells of all
        none, mask = struct.pack("!I", 0), struct.pack("!I", _ASSURED)
        wanted += attribute(_STATUS, none) + attribute(_STATUS_MASK, mask)
    return wanted


def _flows(kernel: Conversation, version: int, protocol: str, wanted: bytes) -> Iterator[Flow]:
    for body in kernel.ask(_TABLE | _GET, _body(version, wanted)):
        told = dict(attributes(body[_FAMILY.size :]))
        original, reply = _tuple(told[_ORIGINAL]), _tuple(told[_REPLY])
        yield Flow(
            protocol,
            _address(original[_IP], _DESTINATION[version]),
            _port(original[_PROTOCOL], _DESTINATION_PORT),
            _address(reply[_IP], _SOURCE[version]),
            _port(reply[_PROTOCOL], _SOURCE_PORT),
            _state(told.get(_DETAILS, b"")) in (_SYN_SENT, _CLOSE),
            nested(_ORIGINAL, told[_ORIGINAL]) + attribute(_ID, told[_ID]),
        )


def _state(details: bytes) -> int:
    """Of TCP, a number of linux/netfilter/nf_conntrack_tcp.h; 0 of others."""
    of_tcp = dict(attributes(details)).get(_TCP, b"")
    return int.from_bytes(dict(attributes(of_tcp)).get(_STATE, b""), "big")


def _forget(kernel: Conversation, version: int, flow: Flow) -> None:
    """Delete one flow; that it has gone by itself, or is another one by now, is as good."""
    try:
        kernel.order(_TABLE | _DELETE, _body(version, flow.handle))
    except OSError as error:
        if error.errno != errno.ENOENT:
            raise


def _body(version: int, fields: bytes) -> bytes:
    return _FAMILY.pack(_FAMILIES[version], 0, 0) + fields


def _tuple(text: bytes) -> Mapping[int, Attributes]:
    return {kind: dict(attributes(value)) for kind, value in attributes(text)}


def _address(told: Attributes, kind: int) -> Address:
    return ip_address(told[kind])


def _port(told: Attributes, kind: int) -> int:
    return int.from_bytes(told.get(kind, b""), "big")
