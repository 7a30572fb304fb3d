"""Two looks at the same thing, and what it has taken between them.  Pure."""

from typing import NamedTuple

from corral.node.hypervisor import Usage


class Sample(NamedTuple):
    """One look.

    ``moment`` is seconds since 1970, to be told; ``clock`` are seconds of a clock that nobody sets,
    to be calculated with.
    """

    moment: float
    clock: float
    usage: Usage


class Window(NamedTuple):
    """The time between two looks; only rates need the first one."""

    before: Sample
    after: Sample

    @property
    def seconds(self) -> float:
        return self.after.clock - self.before.clock

    @property
    def cpu_nanos(self) -> int:
        """Processor time that was taken within."""
        return self.after.usage.cpu_nanos - self.before.usage.cpu_nanos

    @property
    def nanocores(self) -> int:
        """Billionths of a processor that were taken on average."""
        return round(self.cpu_nanos / self.seconds)


def between(before: Sample | None, after: Sample) -> Window | None:
    """What lies between two looks; None where that tells nothing.

    Whoever has taken less than before is somebody else by now.
    """
    if before is None or after.clock <= before.clock:
        return None
    if after.usage.cpu_nanos < before.usage.cpu_nanos:
        return None
    return Window(before, after)
