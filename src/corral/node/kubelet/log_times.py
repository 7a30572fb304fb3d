"""Timestamps of a console log, as far as they were observed.

A serial port has no timestamps, and QEMU writes none into the log.  The manager is notified when a
log grows, and keeps a mark: at most one a second, and fewer of the older ones, so that a few
hundred marks cover a year.
"""

from array import array
from bisect import bisect_left, bisect_right

MOST_MARKS = 256
_APART_SECONDS = 1.0
_SHARE = 0.15


class Times:
    """The marks of one log.  Offsets count bytes from the start of everything ever logged."""

    def __init__(self) -> None:
        self._ends = array("q")
        self._times = array("d")

    def add(self, end: int, moment: float) -> None:
        """Record that the log ends at this offset at this moment, in seconds since 1970."""
        if self._ends and end <= self._ends[-1]:
            return
        if self._times and moment - self._times[-1] < _APART_SECONDS:
            self._ends[-1] = end
            return
        self._ends.append(end)
        self._times.append(moment)
        if len(self._ends) > MOST_MARKS:
            self._thin_out()

    def _thin_out(self) -> None:
        """Drop each mark whose neighbours are no farther apart than a share of its age."""
        times, newest = self._times, self._times[-1]
        kept = [0]
        for index in range(1, len(times) - 1):
            apart = times[index + 1] - times[kept[-1]]
            if apart > _SHARE * (newest - times[index]):
                kept.append(index)
        kept = [*kept, len(times) - 1][1 - MOST_MARKS :]
        self._ends = array("q", (self._ends[index] for index in kept))
        self._times = array("d", (times[index] for index in kept))

    def at(self, offset: int) -> float | None:
        """Return when the byte at an offset was written; None if that was not observed yet."""
        index = bisect_right(self._ends, offset)
        return self._times[index] if index < len(self._times) else None

    def since(self, moment: float) -> int:
        """Return the offset of what was written since a moment."""
        index = bisect_left(self._times, moment)
        return self._ends[index - 1] if index else 0
