"""Two samples of one usage, and the rate between them.  No I/O."""

from typing import NamedTuple

from corral.node.hypervisor import Usage


class Sample(NamedTuple):
    """A sample of usage.

    moment: Unix seconds, for display; clock: monotonic seconds, for rates.
    """

    moment: float
    clock: float
    usage: Usage


class Window(NamedTuple):
    """The interval between two samples."""

    before: Sample
    after: Sample

    @property
    def seconds(self) -> float:
        return self.after.clock - self.before.clock

    @property
    def cpu_nanos(self) -> int:
        """CPU time used in the window."""
        return self.after.usage.cpu_nanos - self.before.usage.cpu_nanos

    @property
    def nanocores(self) -> int:
        """Average CPU usage, in billionths of a CPU."""
        return round(self.cpu_nanos / self.seconds)


def between(before: Sample | None, after: Sample) -> Window | None:
    """Return the window between two samples; None if it is empty.

    A counter that went backwards is that of another process.
    """
    if before is None or after.clock <= before.clock:
        return None
    if after.usage.cpu_nanos < before.usage.cpu_nanos:
        return None
    return Window(before, after)
