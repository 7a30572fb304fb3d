"""Ranges of addresses and addresses, as options of the command line."""

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Any

import click

Network = IPv4Network | IPv6Network

_LONGEST_PREFIX = {4: 28, 6: 120}


class Ranges(click.ParamType[tuple[Network, ...]]):
    """``RANGE[,RANGE]``: one of IPv4, and one of IPv6 if wished, in any order."""

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
            if each.prefixlen > _LONGEST_PREFIX[each.version]:
                least = _LONGEST_PREFIX[each.version]
                self.fail(f"{each} is too small: /{least} is the smallest of use", param, ctx)
        return tuple(ranges)


class Blocks(click.ParamType[tuple[Network, ...]]):
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


def written(ranges: tuple[Network, ...]) -> str:
    """Ranges, as they are given."""
    return ",".join(map(str, ranges))


def overlapping(one: tuple[Network, ...], other: tuple[Network, ...]) -> str:
    """Says which ranges of two sets have common addresses; empty where none do."""
    return ", ".join(
        f"{mine} and {theirs}"
        for mine in one
        for theirs in other
        if mine.version == theirs.version and mine.overlaps(theirs)
    )
