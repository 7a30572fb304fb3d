"""Session affinity: the clients of a table, read back so that they survive its replacement."""

import re
from collections.abc import Mapping

from corral.node.proxy.backends import address

_SET = re.compile(r"set (clients-[0-9a-f]+-[0-9]+) \{\n(.*?)\n\t\}", re.DOTALL)
_CLIENT = re.compile(r"([0-9a-f.:]+) (?:timeout \w+ )?expires ([0-9dhms]+)")
_DURATION_PART = re.compile(r"([0-9]+)(d|h|ms|m|s)")
_UNIT_SECONDS = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}

AffinityClients = Mapping[str, Mapping[str, int]]
"""For each set its clients, and the seconds until they expire."""


def parse_clients(listing: str) -> AffinityClients:
    """Parse the clients in the output of ``list table`` (nft(8))."""
    return {
        name: {
            str(client): seconds
            for text, duration in _CLIENT.findall(body)
            if (client := address(text)) is not None and (seconds := _seconds(duration))
        }
        for name, body in _SET.findall(listing)
    }


def _seconds(duration: str) -> int:
    return int(
        sum(int(count) * _UNIT_SECONDS[unit] for count, unit in _DURATION_PART.findall(duration))
    )
