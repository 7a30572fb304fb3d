"""Holds a set back whose machines end as soon as they start.

KubeVirt replaces them without any delay, which keeps a node busy starting what cannot run.  Here
a few may end young and are replaced at once; beyond that each one doubles the wait.
"""

from dataclasses import dataclass, field

from corral.api.kinds.vmi.vmi import FINAL_PHASES, VirtualMachineInstance
from corral.api.time import parse_rfc3339

YOUNG_SECONDS = 30.0
"""A machine that ends within this time after it began to run ended young."""
FREE = 3
"""So many, and at least one for each replica, are replaced at once."""
FIRST_SECONDS = 1.0
LONGEST_SECONDS = 300.0
TICK_SECONDS = 0.001
FORGIVEN_SECONDS = 600.0
"""After this time without a machine that ended young, all is forgotten."""


@dataclass(slots=True)
class Streak:
    """The machines of one set that ended young, one after the other."""

    generation: int
    """Of the set: whoever changes it gets another chance at once."""
    last: float
    uids: set[str] = field(default_factory=set)
    name: str = ""
    """The machine that ended last."""
    why: str = ""
    """What its status says of that, in a word."""

    @property
    def count(self) -> int:
        return len(self.uids)


class Backoff:
    """The streaks of all sets, by the sets' uids.

    They are remembered only while the process lives, as in KubeVirt's loops.
    """

    def __init__(self) -> None:
        self._streaks: dict[str, Streak] = {}

    def note(self, uid: str, generation: int, machine: VirtualMachineInstance, now: float) -> None:
        """Take notice of a finished machine of the set."""
        if not ended_young(machine):
            return
        streak = self._current(uid, generation, now) or Streak(generation, now)
        self._streaks[uid] = streak
        if machine.metadata.uid not in streak.uids:
            streak.uids.add(machine.metadata.uid)
            streak.name, streak.last = machine.metadata.name, now
            streak.why = machine.status.reason

    def hold(
        self, uid: str, generation: int, replicas: int, now: float
    ) -> tuple[float, Streak | None]:
        """Seconds for which the set makes no machines, and the streak that is the reason."""
        streak = self._current(uid, generation, now)
        beyond = streak.count - max(FREE, replicas) if streak is not None else 0
        if streak is None or beyond <= 0:
            return 0.0, None
        delay = min(FIRST_SECONDS * 2.0 ** min(beyond - 1, 30), LONGEST_SECONDS)
        remaining = delay - (now - streak.last)
        # Less than a clock can tell is no wait: a timer would be over before it is.
        return (remaining, streak) if remaining > TICK_SECONDS else (0.0, None)

    def forget(self, uid: str) -> None:
        self._streaks.pop(uid, None)

    def _current(self, uid: str, generation: int, now: float) -> Streak | None:
        streak = self._streaks.get(uid)
        if streak is None:
            return None
        forgiven = now - streak.last > FORGIVEN_SECONDS
        if forgiven or streak.generation != generation:
            del self._streaks[uid]
            return None
        return streak


def ended_young(machine: VirtualMachineInstance) -> bool:
    """Whether a finished machine never ran, or not for long, though nobody had deleted it."""
    entered = {
        transition.phase: transition.phase_transition_timestamp
        for transition in machine.status.phase_transition_timestamps
    }
    began = entered.get("Running")
    ended = next((entered[phase] for phase in FINAL_PHASES if entered.get(phase)), None)
    deleted = machine.metadata.deletion_timestamp
    if deleted and (ended is None or parse_rfc3339(deleted) <= parse_rfc3339(ended)):
        return False
    if began is None or ended is None:
        return machine.is_final
    return (parse_rfc3339(ended) - parse_rfc3339(began)).total_seconds() < YOUNG_SECONDS
