"""Parsing and validation of IP addresses, networks and ports in documents.

Functions named ``…_faults`` return why a value is invalid, in the real server's words.
"""

import re
from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_address,
    ip_network,
)

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

_LINK_LOCAL_MULTICAST = (ip_network("224.0.0.0/24"), ip_network("ff02::/16"))
_LENGTH = re.compile(r"[^/%]+/[0-9]{1,3}", re.ASCII)
_PORT_NAME = re.compile(r"[-a-z0-9]+", re.ASCII)


def parse_address(text: str) -> Address | None:
    """Parse an address without zone; None if it is invalid."""
    if "%" in text:
        return None
    try:
        return ip_address(text)
    except ValueError:
        return None


def parse_network(text: str) -> Network | None:
    """Parse a network such as ``10.9.8.0/24``, which may have host bits; None if it is invalid."""
    if not _LENGTH.fullmatch(text):
        return None
    try:
        return ip_network(text, strict=False)
    except ValueError:
        return None


def address_faults(text: str) -> list[str]:
    if parse_address(text) is None:
        return ["must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"]
    return []


def network_faults(text: str) -> list[str]:
    if parse_network(text) is None:
        return ["must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"]
    return []


def special_faults(text: str) -> list[str]:
    """Refuse addresses that differ by host as endpoints of a Service (ValidateNonSpecialIP)."""
    address = parse_address(text)
    if address is None:
        return ["must be a valid IP address"]
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    faults = []
    if address.is_unspecified:
        faults.append(f"may not be unspecified ({text})")
    if address.is_loopback:
        faults.append("may not be in the loopback range (127.0.0.0/8, ::1/128)")
    if address.is_link_local:
        faults.append("may not be in the link-local range (169.254.0.0/16, fe80::/10)")
    if any(address in network for network in _LINK_LOCAL_MULTICAST):
        faults.append("may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)")
    return faults


def port_faults(port: int) -> list[str]:
    return [] if 1 <= port <= 65535 else ["must be between 1 and 65535, inclusive"]


def port_of(text: str) -> int:
    """Parse a port number; 0 if it is invalid."""
    number = int(text) if text.isascii() and text.isdecimal() and len(text) <= 5 else 0
    return 0 if port_faults(number) else number


def port_name_faults(name: str) -> list[str]:
    """Validate a port name (IANA_SVC_NAME): at most 15 letters, digits and hyphens."""
    faults = []
    if len(name) > 15:
        faults.append("must be no more than 15 bytes")
    if not _PORT_NAME.fullmatch(name):
        faults.append("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)")
    if not re.search("[a-z]", name):
        faults.append("must contain at least one letter (a-z)")
    if "--" in name:
        faults.append("must not contain consecutive hyphens")
    if name.startswith("-") or name.endswith("-"):
        faults.append("must not begin or end with a hyphen")
    return faults


def port_or_name_faults(port: int | str) -> list[str]:
    return port_faults(port) if isinstance(port, int) else port_name_faults(port)
