"""Back-off for a set, or a warm pool, whose VMIs end right after their start.

KubeVirt replaces them without any delay, which keeps a node busy starting what cannot run. Here the
first few are replaced at once; each one after that doubles the delay.
"""

from dataclasses import dataclass, field

from corral.api.kinds.vmi.vmi import FINAL_PHASES, VirtualMachineInstance
from corral.api.time import parse_rfc3339

EARLY_SECONDS = 30.0
"""A VMI that ends within this time after it began to run ended early."""
IMMEDIATE_REPLACEMENTS = 3
"""Early ends that are replaced at once; at least one for each replica."""
FIRST_SECONDS = 1.0
MAX_SECONDS = 300.0
TICK_SECONDS = 0.001
RESET_SECONDS = 600.0
"""A streak is dropped after this time without another early end."""


@dataclass(slots=True)
class Streak:
    """Consecutive early ends among the VMIs of one set."""

    revision: int | str
    """Generation of the set, or hash of its template; another one starts a new streak."""
    last: float
    uids: set[str] = field(default_factory=set)
    name: str = ""
    """Name of the VMI that ended last."""
    reason: str = ""
    """``status.reason`` of that VMI."""

    @property
    def count(self) -> int:
        return len(self.uids)


class Backoff:
    """The streaks of all sets, by uid of the set. In memory only, as in KubeVirt."""

    def __init__(self) -> None:
        self._streaks: dict[str, Streak] = {}

    def record(
        self, uid: str, revision: int | str, vmi: VirtualMachineInstance, now: float
    ) -> None:
        """Record a VMI of the set if it ended early."""
        if not ended_early(vmi):
            return
        streak = self._current(uid, revision, now) or Streak(revision, now)
        self._streaks[uid] = streak
        if vmi.metadata.uid not in streak.uids:
            streak.uids.add(vmi.metadata.uid)
            streak.name, streak.last = vmi.metadata.name, now
            streak.reason = vmi.status.reason

    def delay(
        self, uid: str, revision: int | str, replicas: int, now: float
    ) -> tuple[float, Streak | None]:
        """Return the seconds until the set may create VMIs, and the streak behind the delay."""
        streak = self._current(uid, revision, now)
        excess = streak.count - max(IMMEDIATE_REPLACEMENTS, replicas) if streak is not None else 0
        if streak is None or excess <= 0:
            return 0.0, None
        delay = min(FIRST_SECONDS * 2.0 ** min(excess - 1, 30), MAX_SECONDS)
        remaining = delay - (now - streak.last)
        # A delay below the clock's resolution is none: its timer would fire before it is over.
        return (remaining, streak) if remaining > TICK_SECONDS else (0.0, None)

    def forget(self, uid: str) -> None:
        self._streaks.pop(uid, None)

    def _current(self, uid: str, revision: int | str, now: float) -> Streak | None:
        streak = self._streaks.get(uid)
        if streak is None:
            return None
        expired = now - streak.last > RESET_SECONDS
        if expired or streak.revision != revision:
            del self._streaks[uid]
            return None
        return streak


def ended_early(vmi: VirtualMachineInstance) -> bool:
    """Report whether a VMI ended early, or before it ran, without having been deleted."""
    entered = {
        transition.phase: transition.phase_transition_timestamp
        for transition in vmi.status.phase_transition_timestamps
    }
    began = entered.get("Running")
    ended = next((entered[phase] for phase in FINAL_PHASES if entered.get(phase)), None)
    deleted = vmi.metadata.deletion_timestamp
    if deleted and (ended is None or parse_rfc3339(deleted) <= parse_rfc3339(ended)):
        return False
    if began is None or ended is None:
        return vmi.is_final
    return (parse_rfc3339(ended) - parse_rfc3339(began)).total_seconds() < EARLY_SECONDS
