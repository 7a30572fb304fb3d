"""The duty cycle of a process with a CPU limit: when to stop it, and when to continue it.  No I/O.

A token bucket grows with time and shrinks with CPU time.  A process without tokens is stopped until
there are some; what it used beyond them, because a sample was late, is a debt that is carried over,
so the average is right however late samples are.
"""

from dataclasses import dataclass

STOP_SECONDS = 0.05
"""Time for which a process is stopped, at most twice: meanwhile its monitor does not answer."""
REPAID_SECONDS = 0.01
"""CPU time of the last run that is repaid in one stop, however long that takes with a small
share."""
SLICE_SECONDS = 0.002
"""The shortest run: a share too small for it is stopped for longer."""
SAMPLE_SECONDS = 0.25
"""Interval of samples of a process below its share."""
MAX_SAMPLE_SECONDS = 1.0
"""Longest interval, of an almost idle process: what it uses meanwhile becomes a debt."""
_IDLE_SHARE = 0.1
_MIN_SAMPLE_SECONDS = 0.002
_BURST_SECONDS = 0.1
"""Time over which unused share accumulates (the period of cgroups)."""
_MAX_STOP_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Decision:
    """The right of a process to run now, and the seconds until the next sample."""

    runs: bool
    next_seconds: float


class Cycle:
    """The state of one process: ``share`` in processors, ``used`` CPU time in seconds."""

    def __init__(self, share: float, now: float, used: float) -> None:
        self._share = share
        self._now = now
        self._used = used
        self._speed = 1.0
        self._last_used = 0.0
        self._tokens = 0.0
        self._runs = True
        self._sample_seconds = SAMPLE_SECONDS

    def sample(self, now: float, used: float) -> Decision:
        """Update the tokens by a sample, and decide."""
        seconds = max(now - self._now, 1e-6)
        used_since = used - self._used
        self._now, self._used = now, used
        self._tokens = min(self._tokens + self._share * seconds - used_since, self._burst)
        if self._runs:
            self._speed, self._last_used = max(1.0, used_since / seconds), used_since
            self._runs = self._tokens > 0
            next_seconds = (
                self._until_spent(used_since / seconds) if self._runs else self._until_allowed()
            )
        else:
            self._runs = True
            next_seconds = max(self._tokens / self._speed, SLICE_SECONDS)
        return Decision(self._runs, next_seconds)

    @property
    def _stop(self) -> float:
        """The length of a stop: enough for the shortest run."""
        slice_seconds = SLICE_SECONDS * self._speed
        return min(max(STOP_SECONDS, slice_seconds / self._share), _MAX_STOP_SECONDS)

    @property
    def _burst(self) -> float:
        return self._share * max(_BURST_SECONDS, 2 * self._stop)

    def _until_spent(self, rate: float) -> float:
        """Return the time after which the tokens may be used up at this rate."""
        if rate < self._share and self._tokens >= self._share * _BURST_SECONDS / 2:
            idle = rate < self._share * _IDLE_SHARE
            self._sample_seconds = (
                min(self._sample_seconds * 2, MAX_SAMPLE_SECONDS) if idle else SAMPLE_SECONDS
            )
            return self._sample_seconds
        self._sample_seconds = SAMPLE_SECONDS
        return max(self._tokens / max(rate, self._share), _MIN_SAMPLE_SECONDS)

    def _until_allowed(self) -> float:
        """Return the length of a stop; it repays only a part of a debt."""
        max_seconds = max(2 * self._stop, min(self._last_used, REPAID_SECONDS) / self._share)
        return min(self._stop - self._tokens / self._share, max_seconds, _MAX_STOP_SECONDS)
