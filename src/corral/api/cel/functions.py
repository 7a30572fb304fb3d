"""Functions that Kubernetes adds to CEL: those of quantities, addresses and URLs; a list of all.

A type that CEL lacks (quantity, address, URL) is a map with one key that names the type, with a
canonical value, so that equality works.  A function raises ValueError if it has no result.
"""

import ipaddress
import re
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

from corral.api.cel import semver
from corral.api.cel.authorizer import ACCESS_CHECKS
from corral.api.cel.formats import NAMED_FORMATS
from corral.api.cel.function import Function, content
from corral.api.cel.lists import LISTS
from corral.api.cel.text_literals import CONVERSIONS
from corral.api.cel.transform_map import INSERTIONS
from corral.api.formats import parses
from corral.api.quantity import parse

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_QUANTITY = "kubernetes.Quantity"
_ADDRESS = "net.IP"
_NETWORK = "net.CIDR"
_URL = "kubernetes.URL"
_BITS = re.compile(r"0|[1-9][0-9]{0,2}", re.ASCII)
"""The prefix length of a network, as Go's ``ParsePrefix`` parses it."""
_NO_NETWORK = "network address parse error during conversion from string"


# ------------------------------------------------------------------- quantities


def _quantity(text: str) -> dict[str, str]:
    try:
        return {_QUANTITY: str(parse(text).nanos)}
    except ValueError as error:
        raise ValueError(f"quantities must match the regular expression: {error}") from None


def _nanos_of(quantity: dict[str, str]) -> int:
    """Return a quantity in billionths."""
    return int(content(quantity, _QUANTITY, str))


def _from_nanos(nanos: int) -> dict[str, str]:
    return {_QUANTITY: str(nanos)}


def _plus(quantity: dict[str, str], other: dict[str, str] | int) -> dict[str, str]:
    return _from_nanos(_nanos_of(quantity) + _nanos(other))


def _minus(quantity: dict[str, str], other: dict[str, str] | int) -> dict[str, str]:
    return _from_nanos(_nanos_of(quantity) - _nanos(other))


def _nanos(other: dict[str, str] | int) -> int:
    return other * 10**9 if isinstance(other, int) else _nanos_of(other)


def _compare(value: dict[str, str], other: dict[str, str]) -> int:
    """Compare two quantities or two versions; negative if the first is less."""
    read: Callable[[dict[str, str]], Any] = semver.key if semver.TYPE in value else _nanos_of
    one, two = read(value), read(other)
    return int((one > two) - (one < two))


def _as_integer(quantity: dict[str, str]) -> int:
    whole, rest = divmod(_nanos_of(quantity), 10**9)
    if rest or not -(2**63) <= whole < 2**63:
        raise ValueError("cannot convert value to integer")
    return whole


def _sign(quantity: dict[str, str]) -> int:
    nanos = _nanos_of(quantity)
    return (nanos > 0) - (nanos < 0)


# ---------------------------------------------------------- addresses, networks


def _read_address(text: str) -> Address:
    if "%" in text:
        raise ValueError(f"IP Address {text!r} with zone value is not allowed")
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        raise ValueError(f"IP Address {text!r} parse error during conversion from string") from None
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        raise ValueError(f"IPv4-mapped IPv6 address {text!r} is not allowed")
    return address


def _read_network(text: str) -> tuple[Address, Network]:
    """Read a network; return the address it is written with, and the network."""
    address, _slash, bits = text.partition("/")
    if _BITS.fullmatch(bits) is None:
        raise ValueError(_NO_NETWORK)
    try:
        return _read_address(address), ipaddress.ip_network((address, int(bits)), strict=False)
    except ValueError:
        raise ValueError(_NO_NETWORK) from None


def _address(text: str) -> dict[str, str]:
    return {_ADDRESS: str(_read_address(text))}


def _network(text: str) -> dict[str, str]:
    address, network = _read_network(text)
    return {_NETWORK: f"{address}/{network.prefixlen}"}


def _address_of(value: dict[str, str] | str) -> Address:
    if isinstance(value, str):
        return _read_address(value)
    return ipaddress.ip_address(content(value, _ADDRESS, str))


def _network_of(value: dict[str, str] | str) -> Network:
    if isinstance(value, str):
        return _read_network(value)[1]
    return _read_network(content(value, _NETWORK, str))[1]


def _version(value: dict[str, str]) -> int:
    return _address_of(value).version


def _as_text(value: dict[str, str]) -> str:
    """Return an address or a network as text."""
    return content(value, _ADDRESS if _ADDRESS in value else _NETWORK, str)


def _address_of_network(network: dict[str, str]) -> dict[str, str]:
    """Return the address that a network is written with."""
    return _address(content(network, _NETWORK, str).partition("/")[0])


def _contains_address(network: dict[str, str], address: dict[str, str] | str) -> bool:
    return _address_of(address) in _network_of(network)


def _contains_network(network: dict[str, str], other: dict[str, str] | str) -> bool:
    outer, inner = _network_of(network), _network_of(other)
    if isinstance(outer, ipaddress.IPv4Network) and isinstance(inner, ipaddress.IPv4Network):
        return inner.subnet_of(outer)
    if isinstance(outer, ipaddress.IPv6Network) and isinstance(inner, ipaddress.IPv6Network):
        return inner.subnet_of(outer)
    return False


def _is_canonical(text: str) -> bool:
    return str(_read_address(text)) == text


def _on_address(read: Callable[[Address], bool]) -> Callable[[dict[str, str]], bool]:
    return lambda value: read(_address_of(value))


def _link_local(address: Address) -> bool:
    return address.is_link_local and not address.is_multicast


def _link_local_multicast(address: Address) -> bool:
    if isinstance(address, ipaddress.IPv4Address):
        return address in ipaddress.IPv4Network("224.0.0.0/24")
    return address.packed[0] == 0xFF and address.packed[1] & 0x0F == 2  # RFC 4291


def _global_unicast(address: Address) -> bool:
    broadcast = address == ipaddress.IPv4Address("255.255.255.255")
    special = address.is_unspecified or address.is_loopback or address.is_multicast
    return not (special or broadcast or address.is_link_local)


# ------------------------------------------------------------------------- URLs


def _url(text: str) -> dict[str, str]:
    """Read an absolute URL or a path, as Go's ``ParseRequestURI``."""
    if any(letter <= " " or letter == "\x7f" for letter in text):
        raise ValueError(f"URL parse error during conversion from string: parse {text!r}")
    try:
        parts = urlsplit(text)
        _port = parts.port
    except ValueError as error:
        raise ValueError(f"URL parse error during conversion from string: {error}") from None
    if not text.startswith("/") and not parts.scheme:
        why = f"parse {text!r}: invalid URI for request"
        raise ValueError(f"URL parse error during conversion from string: {why}")
    return {_URL: text}


def _on_url(read: Callable[[Any], str]) -> Callable[[dict[str, str]], str]:
    return lambda value: read(urlsplit(content(value, _URL, str)))


def _query(value: dict[str, str]) -> dict[str, list[str]]:
    return parse_qs(urlsplit(content(value, _URL, str)).query, keep_blank_values=True)


_QUANTITIES = (
    Function("quantity", ("string",), "map", _quantity, is_method=False),
    Function("isQuantity", ("string",), "bool", parses(parse), is_method=False),
    Function("sign", ("map",), "int", _sign),
    Function("isInteger", ("map",), "bool", lambda value: not _nanos_of(value) % 10**9),
    Function("asInteger", ("map",), "int", _as_integer),
    Function("asApproximateFloat", ("map",), "double", lambda value: _nanos_of(value) / 1e9),
    Function("add", ("map", "map"), "map", _plus),
    Function("add", ("map", "int"), "map", _plus),
    Function("sub", ("map", "map"), "map", _minus),
    Function("sub", ("map", "int"), "map", _minus),
    Function("isLessThan", ("map", "map"), "bool", lambda one, two: _compare(one, two) < 0),
    Function("isGreaterThan", ("map", "map"), "bool", lambda one, two: _compare(one, two) > 0),
    Function("compareTo", ("map", "map"), "int", _compare),
)
_ADDRESSES = (
    Function("ip", ("string",), "map", _address, is_method=False),
    Function("isIP", ("string",), "bool", parses(_read_address), is_method=False),
    Function("ip.isCanonical", ("string",), "bool", _is_canonical, is_method=False),
    Function("family", ("map",), "int", _version),
    Function("isUnspecified", ("map",), "bool", _on_address(lambda at: at.is_unspecified)),
    Function("isLoopback", ("map",), "bool", _on_address(lambda at: at.is_loopback)),
    Function("isLinkLocalMulticast", ("map",), "bool", _on_address(_link_local_multicast)),
    Function("isLinkLocalUnicast", ("map",), "bool", _on_address(_link_local)),
    Function("isGlobalUnicast", ("map",), "bool", _on_address(_global_unicast)),
    Function("cidr", ("string",), "map", _network, is_method=False),
    Function("ip", ("map",), "map", _address_of_network),
    Function("string", ("map",), "string", _as_text, is_method=False),
    Function("isCIDR", ("string",), "bool", parses(_read_network), is_method=False),
    Function("containsIP", ("map", "dyn"), "bool", _contains_address),
    Function("containsCIDR", ("map", "dyn"), "bool", _contains_network),
    Function("prefixLength", ("map",), "int", lambda value: _network_of(value).prefixlen),
    Function("masked", ("map",), "map", lambda value: _network(str(_network_of(value)))),
)
_URLS = (
    Function("url", ("string",), "map", _url, is_method=False),
    Function("isURL", ("string",), "bool", parses(_url), is_method=False),
    Function("getScheme", ("map",), "string", _on_url(lambda url: url.scheme)),
    Function("getHost", ("map",), "string", _on_url(lambda url: url.netloc.rpartition("@")[2])),
    Function("getHostname", ("map",), "string", _on_url(lambda url: url.hostname or "")),
    Function("getPort", ("map",), "string", _on_url(lambda url: str(url.port or ""))),
    Function("getEscapedPath", ("map",), "string", _on_url(lambda url: url.path)),
    Function("getQuery", ("map",), "map", _query),
)
FUNCTIONS: Final = (
    *(*LISTS, *_QUANTITIES, *_ADDRESSES, *_URLS, *semver.VERSIONS),
    *(*NAMED_FORMATS, *ACCESS_CHECKS, *INSERTIONS, *CONVERSIONS),
)
