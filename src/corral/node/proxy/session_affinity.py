"""Which clients stay with which endpoint: read back, so that a new table does not forget them."""

import re
from collections.abc import Mapping

from corral.node.proxy.backends import address

_SET = re.compile(r"set (clients-[0-9a-f]+-[0-9]+) \{\n(.*?)\n\t\}", re.DOTALL)
_CLIENT = re.compile(r"([0-9a-f.:]+) (?:timeout \w+ )?expires ([0-9dhms]+)")
_SPAN = re.compile(r"([0-9]+)(d|h|ms|m|s)")
_SECONDS = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}

Remembered = Mapping[str, Mapping[str, int]]
"""By set: each client, and for how many seconds it is still remembered."""


def remembered(listing: str) -> Remembered:
    """What a listing of the table says of clients (nft(8), ``list table``)."""
    return {
        name: {
            str(client): seconds
            for text, span in _CLIENT.findall(body)
            if (client := address(text)) is not None and (seconds := _seconds(span))
        }
        for name, body in _SET.findall(listing)
    }


def _seconds(span: str) -> int:
    return int(sum(int(count) * _SECONDS[unit] for count, unit in _SPAN.findall(span)))
