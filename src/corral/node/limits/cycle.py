"""When a process with a share of the processors has to stop, and when it may go on.  Pure.

An allowance grows with time and shrinks with use.  Who has none left stops until there is some
again; what was used beyond it, because nobody looked in time, is a debt that is carried on: so the
average is right however late a look comes.
"""

from dataclasses import dataclass

STOP_SECONDS = 0.05
"""So long a process stands still, twice as long at most: meanwhile its monitor does not answer."""
SLICE_SECONDS = 0.002
"""Nobody is let run for less: a share too small for that stands still for longer."""
QUIET_SECONDS = 0.25
"""How often somebody is looked at who uses less than its share."""
_SOONEST_SECONDS = 0.002
_SAVED_SECONDS = 0.1
"""What is not used is kept for so long (the period of the kernel's groups)."""
_LONGEST_STOP_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a process may run now, and in how many seconds it is to be looked at again."""

    runs: bool
    again: float


class Cycle:
    """One process: ``share`` is how many processors it may use, ``used`` its time in seconds."""

    def __init__(self, share: float, now: float, used: float) -> None:
        self._share = share
        self._now = now
        self._used = used
        self._allowance = 0.0
        self._runs = True

    def look(self, now: float, used: float) -> Verdict:
        """What is to be done, as of this moment."""
        seconds = max(now - self._now, 1e-6)
        taken = used - self._used
        saved = self._share * _SAVED_SECONDS
        self._allowance = min(self._allowance + self._share * seconds, saved) - taken
        self._now, self._used = now, used
        if self._runs and self._allowance > 0:
            return Verdict(True, self._until_spent(taken / seconds, saved))  # noqa: FBT003
        if self._runs:
            self._runs = False
            return Verdict(False, self._until_allowed())  # noqa: FBT003
        self._runs = True
        return Verdict(True, self._slice())  # noqa: FBT003

    def _until_spent(self, rate: float, saved: float) -> float:
        """It may use up its allowance by then, if it goes on like this."""
        if rate < self._share and self._allowance >= saved / 2:
            return QUIET_SECONDS
        return max(self._allowance / max(rate, self._share), _SOONEST_SECONDS)

    def _until_allowed(self) -> float:
        """Long enough for a slice that is worth it, but a debt is not paid back all at once."""
        stop = min(max(STOP_SECONDS, SLICE_SECONDS / self._share), _LONGEST_STOP_SECONDS)
        return min(stop - self._allowance / self._share, 2 * stop)

    def _slice(self) -> float:
        """How long it may run at full speed now that it goes on."""
        processors = max(1.0, self._share)
        return max(self._allowance / processors, SLICE_SECONDS)
