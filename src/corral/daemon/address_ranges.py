"""The pod and Service CIDRs of a data directory: chosen once, and kept while they are in use.

Machines reach their gateway and name server by these addresses, so later managers keep them.  They
are stored in a small file, the default of ``corral up``.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network, ip_network

import msgspec

from corral import files
from corral.config import POD_CIDRS, SERVICE_CIDRS, Layout
from corral.node.host.proc import runs
from corral.node.state import machine_record as records

Network = IPv4Network | IPv6Network

POD_PREFIX, SERVICE_PREFIX = 56, 112
"""Prefix lengths of IPv6 ranges that were not chosen."""


@dataclass(frozen=True, slots=True)
class Ranges:
    """The CIDRs of pods and of Services: IPv4, then IPv6."""

    pods: tuple[Network, ...] = POD_CIDRS
    services: tuple[Network, ...] = SERVICE_CIDRS


class _File(msgspec.Struct):
    pods: list[str]
    services: list[str]


def chosen(
    stored: Ranges | None,
    pods: Sequence[Network] | None,
    services: Sequence[Network] | None,
) -> Ranges:
    """Return the requested CIDRs, else the stored ones, else the defaults.

    ``pods`` and ``services`` hold an IPv4 CIDR, and an IPv6 one if it was requested.  Without one,
    machines still have IPv6, in the companion range of the IPv4 CIDR.
    """
    stored = stored or Ranges()
    return Ranges(
        _chosen(stored.pods, pods, POD_PREFIX),
        _chosen(stored.services, services, SERVICE_PREFIX),
    )


def _chosen(
    stored: tuple[Network, ...], requested: Sequence[Network] | None, prefix: int
) -> tuple[Network, ...]:
    if not requested or tuple(requested) == stored[:1]:
        return stored
    if len(requested) > 1:
        return tuple(requested)
    return requested[0], companion(requested[0], prefix)


def companion(network: Network, prefix: int) -> IPv6Network:
    """Return the range of unique local addresses (RFC 4193) that goes with an IPv4 CIDR.

    It contains the first three numbers: fd00:10:244::/56 goes with 10.244.0.0/16.  CIDRs with
    different network addresses have different companions.
    """
    first, second, third, fourth = network.network_address.packed
    return IPv6Network(f"fd{fourth:02x}:{first}:{second}:{third << 8:x}::/{prefix}")


def load(layout: Layout) -> Ranges | None:
    """Return the stored CIDRs; None if nothing has run in the data directory."""
    stored = files.read_json(layout.ranges, _File)
    if stored is None:
        return None
    try:
        return Ranges(_read(stored.pods), _read(stored.services))
    except ValueError:
        return None  # damaged: as good as missing


def _read(texts: Sequence[str]) -> tuple[Network, ...]:
    found = tuple(map(ip_network, texts))
    if [each.version for each in found] != [4, 6]:
        raise ValueError("one range for each IP version")
    return found


def save(layout: Layout, ranges: Ranges) -> None:
    """Store them for the next manager.  Raises OSError."""
    content = _File(list(map(str, ranges.pods)), list(map(str, ranges.services)))
    files.replace(layout.ranges, msgspec.json.encode(content), durable=True)


def in_use(layout: Layout) -> bool:
    """Return whether machines of the data directory exist, or their network."""
    return any(map(runs, layout.network.glob("*/"))) or any(
        True for node in layout.node_directories() for _ in records.unfinished(node)
    )
