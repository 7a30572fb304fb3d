"""The addresses of this host."""

import fcntl
import ipaddress
import socket
import struct
from contextlib import suppress
from pathlib import Path

_GET_ADDRESS = 0x8915  # SIOCGIFADDR of netdevice(7)
_GLOBAL_SCOPE = "00"
_ELSEWHERE = {socket.AF_INET: "192.0.2.1", socket.AF_INET6: "2001:db8::1"}
"""Addresses for documentation (RFC 5737, RFC 3849): nothing is ever sent there."""


def is_wildcard(host: str) -> bool:
    """Report whether a listen address means every address."""
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return not host


def is_loopback(host: str) -> bool:
    """Report whether an address is one of the loopback's; a name is not."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def addresses() -> list[str]:
    """Return the host's current addresses, except link-local ones."""
    return [*_version_4(), *_version_6()]


def reachable(host: str) -> str:
    """Return the address by which clients reach a server that listens at ``host``.

    For a wildcard that is the source address of the default route, or loopback without one.
    """
    if not is_wildcard(host):
        return host
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect((_ELSEWHERE[family], 9))  # selects a route, without sending
        return str(probe.getsockname()[0])
    return "::1" if family == socket.AF_INET6 else "127.0.0.1"


def _version_4() -> list[str]:
    found = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        for _, name in socket.if_nameindex():
            with suppress(OSError):  # an interface may have none
                answer = fcntl.ioctl(any_socket, _GET_ADDRESS, struct.pack("256s", name.encode()))
                found.append(socket.inet_ntop(socket.AF_INET, answer[20:24]))
    return found


def _version_6() -> list[str]:
    try:
        lines = Path("/proc/net/if_inet6").read_text(encoding="ascii").splitlines()
    except OSError:
        return []  # a kernel without it
    fields = [line.split() for line in lines]
    return [
        str(ipaddress.IPv6Address(bytes.fromhex(address)))
        for address, _, _, scope, *_ in fields
        if scope == _GLOBAL_SCOPE
    ]
