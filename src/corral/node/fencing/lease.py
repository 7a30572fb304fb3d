"""The Lease of a node as the node itself knows it: until when it may run exclusive machines.

The last renewal lies in one file, for the watchdog and for the next agent.  Its mtime is that time,
in seconds since the host's boot (CLOCK_BOOTTIME, which counts suspension, and which nobody sets):
changing it needs no disk space, and is atomic.  Its content is the id of that boot.

Another file says that an agent of this boot was stopped while nobody replaces machines of the node:
they run on, however old that renewal is.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

import structlog

from corral import files
from corral.aio import Signal
from corral.api.kinds.core import node_lease
from corral.node.fencing import watchdog
from corral.node.host.proc import boot_id

Clock = Callable[[], float]
"""Returns seconds since the boot of the host, counting suspension."""
STOPPED: Final = "stopped"
"""The file in a node's directory that says that its agent was stopped; it holds the boot's id."""
log = structlog.get_logger()


class NodeLease:
    """The validity of a node's Lease.

    A renewal counts from the moment before its request was sent: the API server has stored it
    later, so it sees the Lease expire later than the node does, whatever the delays.
    """

    def __init__(self, directory: Path, clock: Clock = watchdog.now) -> None:
        self._file = directory / watchdog.RENEWED
        self._stopped_file = directory / STOPPED
        self._clock = clock
        self.lapses = 1
        """Number of expiries observed.  A node that starts knows of no valid Lease.

        What was read from the API before the last lapse may be outdated: meanwhile the cluster may
        have replaced machines of this node."""
        self.renewal = Signal()
        """Set at each renewal."""
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._renewed = self._recorded()
        self.stopped = self._was_stopped()
        """True if machines run on without a valid Lease: nobody replaces them before ``resume``."""

    def now(self) -> float:
        """Return the time to note before a renewal is sent."""
        return self._clock()

    def renewed(self, sent: float) -> None:
        """Note a renewal that has succeeded, by the time before it was sent."""
        self._check()
        try:
            os.utime(self._file, (sent, sent))
        except OSError as error:
            log.error("the renewal of the Lease is not recorded", error=str(error))  # noqa: TRY400
            return  # the watchdog does not know of it, so it does not count
        self._renewed = max(sent, self._renewed)
        self.renewal.set()

    @property
    def seconds_left(self) -> float:
        """Seconds for which the Lease is valid; 0 once it has expired."""
        self._check()
        return max(0.0, self._renewed + node_lease.SECONDS - self._clock())

    @property
    def is_valid(self) -> bool:
        return self.seconds_left > 0

    @property
    def ends_machines(self) -> bool:
        """True if exclusive machines may be replaced, so that they must not run."""
        return not (self.is_valid or self.stopped)

    def stop(self) -> None:
        """Let exclusive machines run on without a valid Lease, for this boot.  Raises OSError."""
        files.replace(self._stopped_file, boot_id().encode(), durable=True)
        self.stopped = True

    def resume(self) -> None:
        """End what ``stop`` has begun.  Raises OSError.

        A removal that a power cut undoes does no harm: the file is of an earlier boot then.
        """
        self._stopped_file.unlink(missing_ok=True)
        self.stopped = False

    def _check(self) -> None:
        """Count a lapse, also one that is over: this process may have hung meanwhile."""
        if self._renewed + node_lease.SECONDS <= self._clock() and self._renewed > float("-inf"):
            self.lapses += 1
            self._renewed = float("-inf")

    def _recorded(self) -> float:
        """Return the last renewal of an earlier agent of this boot; -inf without one."""
        boot = boot_id().encode()
        try:
            if self._file.read_bytes() == boot:
                return watchdog.last_renewal(self._file.parent, self._clock()) or float("-inf")
        except FileNotFoundError:
            pass
        files.replace(self._file, boot)  # its mtime is the time of day, which is no renewal
        return float("-inf")

    def _was_stopped(self) -> bool:
        try:
            return self._stopped_file.read_bytes() == boot_id().encode()
        except FileNotFoundError:
            return False
