"""The kernel's table of connections: finds those to a port, and forgets some of them.

Speaks nfnetlink's few messages itself: a machine has tens of thousands of connections, the kernel
picks the few that are meant, and whatever decodes all of what it says of each takes milliseconds a
piece.  Acts on the namespace of the calling thread: call it through ``Namespace.run`` or ``call``.
"""

import errno
import os
import socket
import struct
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Final

from corral.node.network.netlink import Address, NetworkError

UDP: Final = 17

_NETFILTER: Final = 12  # netlink(7): NETLINK_NETFILTER
_TABLE: Final = 1 << 8  # NFNL_SUBSYS_CTNETLINK
_GET, _DELETE = 1, 2
_REQUEST, _ACKNOWLEDGE, _DUMP = 0x1, 0x4, 0x300
_ERROR, _DONE = 2, 3
_NESTED: Final = 0x8000
_TYPE_MASK: Final = 0x3FFF
_LARGEST: Final = 1 << 16
_PATIENCE_SECONDS: Final = 10.0

# Attributes, by linux/netfilter/nfnetlink_conntrack.h.
_ORIGINAL, _REPLY, _ID, _FILTER = 1, 2, 12, 25
_IP, _PROTOCOL = 1, 2
_SOURCE, _DESTINATION = {4: 1, 6: 3}, {4: 2, 6: 4}
_NUMBER, _SOURCE_PORT, _DESTINATION_PORT = 1, 2, 3
_FILTER_ORIGINAL: Final = 1
_BY_PROTOCOL, _BY_PORT = 1 << 3, 1 << 5

_HEADER: Final = struct.Struct("=IHHII")
_FAMILY: Final = struct.Struct("!BBH")
_ATTRIBUTE: Final = struct.Struct("=HH")
_FAMILIES: Final = {4: socket.AF_INET, 6: socket.AF_INET6}

Attributes = Mapping[int, bytes]


@dataclass(frozen=True, slots=True)
class Flow:
    """A connection as its client sees it, and who answers it.  ``handle`` is the kernel's."""

    destination: Address
    destination_port: int
    answerer: Address
    answerer_port: int
    handle: bytes


def forget_flows(
    is_stale: Callable[[Flow], bool],
    *,
    version: int,
    protocol: int,
    port: int | None = None,
) -> int:
    """Forget the flows of a protocol, to one port or to any, that a predicate picks.

    Answers how many.  The next packet of such a flow is led as a new one's.  Raises NetworkError.
    """
    try:
        with _conversation() as kernel:
            wanted = _pick(protocol, port)
            found = [flow for flow in _flows(kernel, version, wanted) if is_stale(flow)]
            for flow in found:
                _forget(kernel, version, flow)
            return len(found)
    except OSError as error:
        raise NetworkError(f"flows cannot be forgotten: {error.strerror or error}") from error


def _conversation() -> socket.socket:
    """With the kernel, about the namespace of the calling thread."""
    kernel = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETFILTER)
    kernel.settimeout(_PATIENCE_SECONDS)
    return kernel


def _pick(protocol: int, port: int | None) -> bytes:
    """The attributes by which the kernel picks flows (Linux 5.8).

    An address is not among them: of IPv6 the kernel picks those that have any other one.
    """
    flags = _BY_PROTOCOL
    transport = _attribute(_NUMBER, bytes([protocol]))
    if port is not None:
        flags |= _BY_PORT
        transport += _attribute(_DESTINATION_PORT, struct.pack("!H", port))
    original = _nested(_IP, b"") + _nested(_PROTOCOL, transport)
    picked = _attribute(_FILTER_ORIGINAL, struct.pack("=I", flags))
    return _nested(_ORIGINAL, original) + _nested(_FILTER, picked)


def _flows(kernel: socket.socket, version: int, wanted: bytes) -> Iterator[Flow]:
    kernel.send(_message(_GET, _REQUEST | _DUMP, version, wanted))
    for body in _answers(kernel):
        told = dict(_attributes(body[_FAMILY.size :]))
        original, reply = _tuple(told[_ORIGINAL]), _tuple(told[_REPLY])
        yield Flow(
            _address(original[_IP], _DESTINATION[version]),
            _port(original[_PROTOCOL], _DESTINATION_PORT),
            _address(reply[_IP], _SOURCE[version]),
            _port(reply[_PROTOCOL], _SOURCE_PORT),
            _attribute(_ORIGINAL | _NESTED, told[_ORIGINAL]) + _attribute(_ID, told[_ID]),
        )


def _forget(kernel: socket.socket, version: int, flow: Flow) -> None:
    """Delete one flow; that it has gone by itself, or is another one by now, is as good."""
    kernel.send(_message(_DELETE, _REQUEST | _ACKNOWLEDGE, version, flow.handle))
    try:
        for _ in _answers(kernel):
            pass
    except OSError as error:
        if error.errno != errno.ENOENT:
            raise


def _answers(kernel: socket.socket) -> Iterator[bytes]:
    """The bodies of an answer's messages, up to its end.  Raises OSError."""
    while True:
        said = kernel.recv(_LARGEST)
        while len(said) >= _HEADER.size:
            length, kind, *_ = _HEADER.unpack_from(said)
            body, said = said[_HEADER.size : length], said[_aligned(length) :]
            if kind == _DONE:
                return
            if kind == _ERROR:
                code = -int.from_bytes(body[:4], sys.byteorder, signed=True)
                if code:
                    raise OSError(code, os.strerror(code))
                return
            yield body


def _message(kind: int, flags: int, version: int, attributes: bytes) -> bytes:
    body = _FAMILY.pack(_FAMILIES[version], 0, 0) + attributes
    return _HEADER.pack(_HEADER.size + len(body), _TABLE | kind, flags, 1, 0) + body


def _attribute(kind: int, value: bytes) -> bytes:
    length = _ATTRIBUTE.size + len(value)
    return _ATTRIBUTE.pack(length, kind) + value + bytes(_aligned(length) - length)


def _nested(kind: int, value: bytes) -> bytes:
    return _attribute(kind | _NESTED, value)


def _attributes(text: bytes) -> Iterator[tuple[int, bytes]]:
    while len(text) >= _ATTRIBUTE.size:
        length, kind = _ATTRIBUTE.unpack_from(text)
        yield kind & _TYPE_MASK, text[_ATTRIBUTE.size : length]
        text = text[_aligned(max(length, _ATTRIBUTE.size)) :]


def _tuple(text: bytes) -> Mapping[int, Attributes]:
    return {kind: dict(_attributes(value)) for kind, value in _attributes(text)}


def _address(told: Attributes, kind: int) -> Address:
    return ip_address(told[kind])


def _port(told: Attributes, kind: int) -> int:
    return int.from_bytes(told.get(kind, b""), "big")


def _aligned(length: int) -> int:
    return (length + 3) & ~3
