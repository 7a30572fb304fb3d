"""The ranges of addresses of a data directory: chosen once, and kept as long as they are in use.

Machines know their gateway and their name server by these addresses, so a later manager has to keep
to them.  They lie in a small file, and are what ``corral up`` takes where it is not told others.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network, ip_network

import msgspec

from corral import files
from corral.config import POD_CIDRS, SERVICE_CIDRS, Layout
from corral.node.host.process import runs
from corral.node.state import machine_record as records

Network = IPv4Network | IPv6Network

POD_PREFIX, SERVICE_PREFIX = 56, 112
"""How long the prefixes of ranges of IPv6 are that nobody has named."""


@dataclass(frozen=True, slots=True)
class Ranges:
    """The addresses of pods and of Services: a range of IPv4, then one of IPv6."""

    pods: tuple[Network, ...] = POD_CIDRS
    services: tuple[Network, ...] = SERVICE_CIDRS


class _Written(msgspec.Struct):
    pods: list[str]
    services: list[str]


def chosen(
    known: Ranges | None,
    pods: Sequence[Network] | None,
    services: Sequence[Network] | None,
) -> Ranges:
    """What to take: as told, else as known, else the defaults.

    ``pods`` and ``services`` hold a range of IPv4, and one of IPv6 if one was named.  Where none
    was, machines have IPv6 all the same, in the range that goes with that of IPv4.
    """
    known = known or Ranges()
    return Ranges(
        _chosen(known.pods, pods, POD_PREFIX),
        _chosen(known.services, services, SERVICE_PREFIX),
    )


def _chosen(
    known: tuple[Network, ...], told: Sequence[Network] | None, prefix: int
) -> tuple[Network, ...]:
    if not told or tuple(told) == known[:1]:
        return known
    return tuple(told) if len(told) > 1 else (told[0], companion(told[0], prefix))


def companion(network: Network, prefix: int) -> IPv6Network:
    """The range of unique local addresses (RFC 4193) that goes with a range of IPv4.

    Its first three numbers can be read in it: fd00:10:244::/56 is that of 10.244.0.0/16.  Ranges
    that begin differently have different ones.
    """
    first, second, third, fourth = network.network_address.packed
    return IPv6Network(f"fd{fourth:02x}:{first}:{second}:{third << 8:x}::/{prefix}")


def known(layout: Layout) -> Ranges | None:
    """What a data directory has had so far; None where nothing has run in it."""
    written = files.read_json(layout.ranges, _Written)
    if written is None:
        return None
    try:
        return Ranges(_read(written.pods), _read(written.services))
    except ValueError:
        return None  # spoilt by other hands: as good as absent


def _read(written: Sequence[str]) -> tuple[Network, ...]:
    found = tuple(map(ip_network, written))
    if [each.version for each in found] != [4, 6]:
        raise ValueError("one range for each IP version")
    return found


def remember(layout: Layout, ranges: Ranges) -> None:
    """Keep them for the next manager.  Raises OSError."""
    written = _Written(list(map(str, ranges.pods)), list(map(str, ranges.services)))
    files.replace(layout.ranges, msgspec.json.encode(written), durable=True)


def in_use(layout: Layout) -> bool:
    """Whether machines of a data directory are there, or the network that they were in."""
    return any(map(runs, layout.network.glob("*/"))) or any(
        True for node in layout.node_directories() for _ in records.unfinished(node)
    )
