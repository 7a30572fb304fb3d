"""Counters of a guest's disks, interfaces and vCPUs since its start."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class Flow:
    """One direction of a disk (with ``nanos``) or of an interface (with ``errors``, ``drops``)."""

    count: int = 0
    bytes: int = 0
    nanos: int = 0
    errors: int = 0
    drops: int = 0


class Disk(NamedTuple):
    """I/O of a disk."""

    reads: Flow
    writes: Flow
    flushes: Flow


class Card(NamedTuple):
    """Traffic of an interface."""

    received: Flow
    sent: Flow


class Processor(NamedTuple):
    """CPU time of a vCPU, and the time that it waited for a CPU."""

    ran_nanos: int
    waited_nanos: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Counters:
    """All counters of a guest: disks by volume, vCPUs by number.

    ``user_nanos`` and ``system_nanos``: of the whole process.  ``balloon_bytes``: the memory that
    the balloon leaves to the guest, where there is one.
    """

    disks: Mapping[str, Disk] = field(default_factory=dict)
    processors: Mapping[int, Processor] = field(default_factory=dict)
    user_nanos: int = 0
    system_nanos: int = 0
    balloon_bytes: int | None = None


class MigrationCounters(NamedTuple):
    """Counters of a running live migration: memory, and disks that are copied.

    Bytes in total, sent, and left; bytes a second that the guest changes, and that are sent.
    """

    total: int
    processed: int
    remaining: int
    dirty_rate: float
    transfer_rate: float
