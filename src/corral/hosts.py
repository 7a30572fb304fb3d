"""The names and addresses by which this machine is reached."""

import fcntl
import ipaddress
import socket
import struct
from contextlib import suppress
from pathlib import Path

_GET_ADDRESS = 0x8915  # SIOCGIFADDR of netdevice(7)
_GLOBAL_SCOPE = "00"
_ELSEWHERE = {socket.AF_INET: "192.0.2.1", socket.AF_INET6: "2001:db8::1"}
"""Addresses that nobody has (RFC 5737, RFC 3849): nothing is ever sent there."""


def is_wildcard(host: str) -> bool:
    """Whether listening there means listening on every address."""
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return not host


def addresses() -> list[str]:
    """The machine's addresses as they are now, those for one link only left out."""
    return [*_version_4(), *_version_6()]


def reachable(host: str) -> str:
    """Where a client finds a server that listens at ``host``: of a wildcard, a real address.

    That is the address by which this machine reaches others; a loopback one where it has none.
    """
    if not is_wildcard(host):
        return host
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect((_ELSEWHERE[family], 9))  # chooses a route, and sends nothing
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
