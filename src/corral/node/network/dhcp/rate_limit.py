"""How often something may happen: a token bucket that does not know what it counts."""

from __future__ import annotations


class Allowance:
    """So many times a second in the long run, and `burst` times at once."""

    def __init__(self, a_second: float, burst: int) -> None:
        self._a_second = a_second
        self._burst = burst
        self._left = float(burst)
        self._at = 0.0

    def take(self, now: float) -> float:
        """Takes one at the time `now` and answers 0, or answers how many seconds to wait.

        Then half of the burst is there again, so that waiting pays.
        """
        self._left = min(self._burst, self._left + max(0.0, now - self._at) * self._a_second)
        self._at = now
        if self._left < 1:
            return (self._burst / 2 - self._left) / self._a_second
        self._left -= 1
        return 0.0
