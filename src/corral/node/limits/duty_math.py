"""When a process with a share of the processors has to stop, and when it may go on.  Pure.

An allowance grows with time and shrinks with use.  Who has none left stops until there is some
again; what was used beyond it, because nobody looked in time, is a debt that is carried on: so the
average is right however late a look comes.
"""

from dataclasses import dataclass

STOP_SECONDS = 0.05
"""So long a process stands still, twice as long at most: meanwhile its monitor does not answer."""
PAID_SECONDS = 0.01
"""So much of what was used last is paid back at once, however long that takes a small share."""
SLICE_SECONDS = 0.002
"""Nobody is let run for less: a share too small for that stands still for longer."""
QUIET_SECONDS = 0.25
"""How often somebody is looked at who uses less than its share."""
IDLE_SECONDS = 1.0
"""How often, in the end, somebody who uses next to nothing of it: what it may do unseen is a debt
that it stands still for."""
_IDLE = 0.1
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
        self._speed = 1.0
        self._taken = 0.0
        self._allowance = 0.0
        self._runs = True
        self._quiet = QUIET_SECONDS

    def look(self, now: float, used: float) -> Verdict:
        """What is to be done, as of this moment."""
        seconds = max(now - self._now, 1e-6)
        taken = used - self._used
        self._now, self._used = now, used
        self._allowance = min(self._allowance + self._share * seconds - taken, self._saved)
        if self._runs:
            self._speed, self._taken = max(1.0, taken / seconds), taken
            self._runs = self._allowance > 0
            again = self._until_spent(taken / seconds) if self._runs else self._until_allowed()
        else:
            self._runs = True
            again = max(self._allowance / self._speed, SLICE_SECONDS)
        return Verdict(self._runs, again)

    @property
    def _stop(self) -> float:
        """Long enough for a slice that is worth it."""
        slice_seconds = SLICE_SECONDS * self._speed
        return min(max(STOP_SECONDS, slice_seconds / self._share), _LONGEST_STOP_SECONDS)

    @property
    def _saved(self) -> float:
        return self._share * max(_SAVED_SECONDS, 2 * self._stop)

    def _until_spent(self, rate: float) -> float:
        """It may use up its allowance by then, if it goes on like this."""
        if rate < self._share and self._allowance >= self._share * _SAVED_SECONDS / 2:
            idle = rate < self._share * _IDLE
            self._quiet = min(self._quiet * 2, IDLE_SECONDS) if idle else QUIET_SECONDS
            return self._quiet
        self._quiet = QUIET_SECONDS
        return max(self._allowance / max(rate, self._share), _SOONEST_SECONDS)

    def _until_allowed(self) -> float:
        """A debt is not paid back all at once."""
        longest = max(2 * self._stop, min(self._taken, PAID_SECONDS) / self._share)
        return min(self._stop - self._allowance / self._share, longest, _LONGEST_STOP_SECONDS)
