"""What a guest's disks, cards and processors have done since its start."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class Flow:
    """A direction of a disk, which takes ``nanos``, or of a card, with ``errors`` and ``drops``."""

    count: int = 0
    bytes: int = 0
    nanos: int = 0
    errors: int = 0
    drops: int = 0


class Disk(NamedTuple):
    """What a guest has asked of a disk."""

    reads: Flow
    writes: Flow
    flushes: Flow


class Card(NamedTuple):
    """What has come to a guest, and what it has sent."""

    received: Flow
    sent: Flow


class Processor(NamedTuple):
    """For how long a virtual processor has run, and has waited for a real one."""

    ran_nanos: int
    waited_nanos: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Counters:
    """All of it: disks by their volume, processors by their number.

    ``user_nanos`` and ``system_nanos``: of the process as a whole.  ``balloon_bytes``: the memory
    that the balloon leaves to the guest, where it has one.
    """

    disks: Mapping[str, Disk] = field(default_factory=dict)
    processors: Mapping[int, Processor] = field(default_factory=dict)
    user_nanos: int = 0
    system_nanos: int = 0
    balloon_bytes: int | None = None
