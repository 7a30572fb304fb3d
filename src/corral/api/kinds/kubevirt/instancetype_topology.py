"""CPU topology of an instance type's processors, according to a preference."""

from typing import NamedTuple

from corral.api.errors import Cause
from corral.api.kinds.kubevirt.instancetype import PreferenceSpec, SpreadOptions
from corral.api.kinds.vmi.derived import Processors

SPREAD, ANY = "spread", "any"
_OLD_SPELLING = {
    "preferSockets": "sockets",
    "preferCores": "cores",
    "preferThreads": "threads",
    "preferSpread": SPREAD,
    "preferAny": ANY,
}
TOPOLOGIES = frozenset({*_OLD_SPELLING, *_OLD_SPELLING.values()})
ACROSS = ("SocketsCores", "CoresThreads", "SocketsCoresThreads")
THREADS_OF_A_CORE = 2
"""Threads per core where processors are spread across threads."""


class Spread(NamedTuple):
    """The spread of processors: across which units, and how many of the smaller per larger."""

    across: str
    ratio: int


def preferred(preference: PreferenceSpec | None) -> str:
    """Return the preferred topology: sockets, cores, threads, spread or any."""
    cpu = preference.cpu if preference is not None else None
    topology = (cpu.preferred_cpu_topology if cpu is not None else None) or "sockets"
    return _OLD_SPELLING.get(topology, topology)


def spread(preference: PreferenceSpec | None) -> Spread:
    """Return how a preference spreads processors; 2 cores per socket by default."""
    cpu = preference.cpu if preference is not None else None
    options = (cpu.spread_options if cpu is not None else None) or SpreadOptions()
    old = preference.prefer_spread_socket_to_core_ratio if preference is not None else 0
    return Spread(options.across or ACROSS[0], options.ratio or old or 2)


def cpu_topology(count: int, preference: PreferenceSpec | None) -> Processors:
    """Return the topology of ``count`` processors, which ``divisibility_cause`` has accepted."""
    if count == 1:
        return Processors(1, 1, 1)
    match preferred(preference):
        case "cores":
            return Processors(1, count, 1)
        case "threads":
            return Processors(1, 1, count)
        case topology if topology == SPREAD:
            return _spread_out(count, spread(preference))
        case _:
            return Processors(count, 1, 1)


def _spread_out(count: int, options: Spread) -> Processors:
    across, ratio = options
    if across == "CoresThreads":
        return Processors(1, count // ratio, ratio)
    if across == "SocketsCoresThreads":
        return Processors(count // THREADS_OF_A_CORE // ratio, ratio, THREADS_OF_A_CORE)
    return Processors(count // ratio, ratio, 1)


def divisibility_cause(count: int, preference: PreferenceSpec | None) -> Cause | None:
    """Return the cause, in KubeVirt's words, if the processors cannot be spread as preferred."""
    if preferred(preference) != SPREAD:
        return None
    across, ratio = spread(preference)
    ratio_field = "Spec.PreferSpreadSocketToCoreRatio or Spec.CPU.PreferSpreadOptions.Ratio of"
    prefix = f"{count} vCPUs provided by the instance type are not divisible by the"
    threads = f"number of threads per core {THREADS_OF_A_CORE}"
    match across:
        case "CoresThreads":
            wrong, why = count % ratio, f"number of threads per core {ratio}"
        case "SocketsCoresThreads":
            wrong = count % (THREADS_OF_A_CORE * ratio)
            why = f"{threads} and {ratio_field} {ratio}"
        case _:
            wrong, why = count % ratio, f"{ratio_field} {ratio} provided by the preference"
    return Cause("instancetype.spec.cpu.guest", f"{prefix} {why}") if wrong else None
