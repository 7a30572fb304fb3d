"""Parameter types for addresses, CIDRs, ports and URLs."""

from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Any
from urllib.parse import urlsplit

import click

from corral.api.addresses import Network, port_of

_MAX_PREFIX = {4: 28, 6: 120}


class Ranges(click.ParamType[tuple[Network, ...]]):
    """``RANGE[,RANGE]``: one of IPv4 and optionally one of IPv6, in any order."""

    name = "cidr[,cidr]"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[Network, ...]:
        if isinstance(value, tuple):
            return value
        try:
            ranges = [ip_network(each.strip()) for each in str(value).split(",")]
        except ValueError as error:
            self.fail(f"{error}: write it as 10.244.0.0/16", param, ctx)
        ranges.sort(key=lambda each: each.version)
        if [each.version for each in ranges] not in ([4], [4, 6]):
            self.fail(f"{value!r}: name one range of IPv4, and at most one of IPv6", param, ctx)
        for each in ranges:
            if each.prefixlen > _MAX_PREFIX[each.version]:
                longest = _MAX_PREFIX[each.version]
                self.fail(f"{each} is too small: use /{longest} or shorter", param, ctx)
        return tuple(ranges)


class Cidrs(click.ParamType[tuple[Network, ...]]):
    """``RANGE[,RANGE…]``: any number of ranges and addresses."""

    name = "cidr[,cidr…]"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[Network, ...]:
        if isinstance(value, tuple):
            return value
        try:
            return tuple(ip_network(each.strip()) for each in str(value).split(","))
        except ValueError as error:
            self.fail(f"{error}: write it as 192.0.2.7 or 10.1.0.0/16", param, ctx)


class BindAddress(click.ParamType[tuple[str, int]]):
    """``ADDRESS:PORT``, ``ADDRESS`` or ``:PORT``; IPv6 addresses in brackets."""

    name = "address:port"

    def __init__(self, port: int = 6443) -> None:
        self._port = port

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, int]:
        if isinstance(value, tuple):
            return value
        address, separator, port = str(value).rpartition(":")
        if not separator or (":" in address and not address.endswith("]")) or port.endswith("]"):
            address, port = str(value), str(self._port)
        if not port.isdigit() or not 0 < int(port) < 65536:
            self.fail(f"{value!r}: the port must be a number from 1 to 65535", param, ctx)
        return address.strip("[]") or "127.0.0.1", int(port)


class Ports(click.ParamType[tuple[range, ...]]):
    """``PORT[-PORT],…``: ports, and ranges of them."""

    name = "port[-port],…"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[range, ...]:
        if isinstance(value, tuple):
            return value
        return tuple(self._range(each.strip(), param, ctx) for each in str(value).split(","))

    def _range(self, text: str, param: click.Parameter | None, ctx: click.Context | None) -> range:
        first, _, last = text.partition("-")
        start, end = port_of(first), port_of(last or first)
        if not 0 < start <= end:
            self.fail(f"{text!r} is no port from 1 to 65535: write 5432 or 8000-8099", param, ctx)
        return range(start, end + 1)


class Address(click.ParamType[IPv4Address | IPv6Address]):
    """An IP address."""

    name = "address"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> IPv4Address | IPv6Address:
        try:
            return ip_address(value)
        except ValueError as error:
            self.fail(f"{error}", param, ctx)


def format_ranges(ranges: tuple[Network | range, ...]) -> str:
    """Return ranges of addresses or ports as an option's value."""
    return ",".join(
        f"{each[0]}-{each[-1]}" if isinstance(each, range) else str(each) for each in ranges
    )


def overlapping(one: tuple[Network, ...], other: tuple[Network, ...]) -> str:
    """Return the overlapping ranges of two sets as text; empty if there are none."""
    return ", ".join(
        f"{mine} and {theirs}"
        for mine in one
        for theirs in other
        if mine.version == theirs.version and mine.overlaps(theirs)
    )


class WebUrl(click.ParamType[str]):
    """``http://HOST:PORT/PATH`` or ``https://…``; without credentials, and without a query."""

    name = "url"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        text = str(value)
        if not text:
            return text
        try:
            parts = urlsplit(text)
            host, _ = parts.hostname, parts.port  # reading the port validates it
        except ValueError as error:
            self.fail(f"{text!r}: {error}", param, ctx)
        if parts.scheme not in ("http", "https") or not host or not text.isprintable():
            self.fail(f"{text!r}: must be http://HOST:PORT or https://HOST:PORT", param, ctx)
        if parts.username is not None or parts.password is not None:
            self.fail(
                "a user and a password in the URL would be seen by everybody on this host; let a "
                "proxy add them",
                param,
                ctx,
            )
        if parts.query or parts.fragment or " " in text:
            self.fail(f"{text!r}: must end with its path", param, ctx)
        return text.rstrip("/")
