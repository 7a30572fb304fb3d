"""Processes that outlive the manager, and are adopted by the next one: QEMU, and helpers.

A lock identifies them, not a pid: the process inherits a descriptor with an flock on ``alive`` in
its directory, and the kernel releases it when the last holder dies.  So whether a process runs for
a directory is well-defined at any moment, also between the fork and the write of the record.  The
record (pid, start time, boot) identifies the process for signals; if the manager died before it
wrote one, the holder of the lock is searched in /proc.

A pidfd notifies the end of a process, also of one that is not our child.
"""

import asyncio
import contextlib
import os
import shutil
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from corral import files
from corral.aio import wait_at_most
from corral.node.host.proc import (
    LOCK,
    RECORD,
    boot_id,
    lock_holder,
    runs,
    state_of,
)

END_SECONDS = 10.0
"""Longest end of a killed process."""
_ENDING_SECONDS = 2.0
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_ENVIRONMENT = {
    "LC_ALL": "C.UTF-8",
    # A heap for each thread (glibc's malloc) makes an idle machine's QEMU larger by 1 to 3 MB.
    "MALLOC_ARENA_MAX": "1",
}
OOM_SCORE_ADJ = "500"  # the OOM killer prefers what the manager can restart


class Identity(msgspec.Struct, frozen=True):
    """Identifies a process permanently: a pid alone is reused."""

    pid: int
    started_ticks: int
    boot_id: str


def identify(pid: int) -> Identity | None:
    """Return the identity of a living process; None if it has ended."""
    state = state_of(pid)
    return Identity(pid, state[1], boot_id()) if state is not None else None


def set_close_on_exec() -> None:
    """Keep later children from inheriting descriptors that this process has inherited."""
    for entry in Path("/proc/self/fd").iterdir():
        if (descriptor := int(entry.name)) > 2:
            with contextlib.suppress(OSError):
                os.set_inheritable(descriptor, False)  # noqa: FBT003


def launch(command: Sequence[str], *, descriptors: Sequence[int], output: int) -> int:
    """Start a command in its own session, and return its pid; it inherits only ``descriptors``.

    It starts in the namespaces of the calling thread.  ``posix_spawn`` does not copy the manager's
    page tables, so the cost of a start does not depend on the manager's size.  Raises
    FileNotFoundError if the program is missing.
    """
    null = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.posix_spawn(
            shutil.which(command[0]) or command[0],
            [*command],
            {"PATH": os.environ.get("PATH", os.defpath), **_ENVIRONMENT},
            file_actions=[
                (os.POSIX_SPAWN_DUP2, null, 0),
                (os.POSIX_SPAWN_DUP2, output, 1),
                (os.POSIX_SPAWN_DUP2, output, 2),
                # dup2 onto itself is how a spawn file action clears close-on-exec
                *((os.POSIX_SPAWN_DUP2, one, one) for one in descriptors),
            ],
            setsid=True,
            setsigmask=(),
            setsigdef=(signal.SIGPIPE, signal.SIGINT, signal.SIGTERM),
        )
    finally:
        os.close(null)


def find(directory: Path) -> Identity | None:
    """Return the process that runs for a directory, by its record or its lock."""
    identity = read_record(directory)
    if identity is not None and identify(identity.pid) == identity:
        return identity
    holder = lock_holder(directory / LOCK) if runs(directory) else None
    return identify(holder) if holder is not None else None


_RELEASED: set[Identity] = set()
"""Children that were released, and are reaped when they end."""


class Pulse(NamedTuple):
    """The CPU time of a process's main thread, and whether it is runnable.

    A main thread that has not run between two samples, and was not waiting for a CPU, has done
    nothing.
    """

    ran_nanos: int
    runnable: bool


def made_no_progress(before: Pulse | None, after: Pulse | None) -> bool:
    """Report whether a living process did nothing between two samples, although it could run."""
    if before is None or after is None:
        return False
    return before == after and not after.runnable


class Process:
    """A running process, our child or not."""

    def __init__(self, identity: Identity, pidfd: int) -> None:
        self.identity = identity
        self._pidfd = pidfd
        self._ended = asyncio.Event()
        self._end_callbacks: list[Callable[[], None]] = []
        asyncio.get_running_loop().add_reader(pidfd, self._on_end)

    @classmethod
    def spawn(
        cls, command: Sequence[str], directory: Path, *, descriptors: Sequence[int], output: int
    ) -> "Process":
        """Launch a command for a directory, and watch it.  Raises FileNotFoundError."""
        return cls.of_child(launch(command, descriptors=descriptors, output=output), directory)

    @classmethod
    def of_child(cls, pid: int, directory: Path) -> "Process":
        """Watch and record a process that was just launched for a directory."""
        try:
            started = cls(identify(pid) or Identity(pid, 0, boot_id()), os.pidfd_open(pid))
        except OSError:  # no descriptor is left to watch it with
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            raise
        with contextlib.suppress(OSError):
            Path(f"/proc/{pid}/oom_score_adj").write_text(OOM_SCORE_ADJ, encoding="ascii")
        write_record(directory, started.identity)
        return started

    @classmethod
    async def adopt(cls, directory: Path) -> "Process | None":
        """Return the process that an earlier manager has started for a directory."""
        identity = await asyncio.to_thread(find, directory)  # may search all processes
        if identity is None:
            return None
        try:
            pidfd = os.pidfd_open(identity.pid)
        except ProcessLookupError:
            return None
        if identify(identity.pid) != identity:  # it has ended, and the pid was reused
            os.close(pidfd)
            return None
        write_record(directory, identity)
        return cls(identity, pidfd)

    @property
    def ended(self) -> bool:
        return self._ended.is_set()

    def on_end(self, callback: Callable[[], None]) -> None:
        """Call a function when the process has ended; at once if it has."""
        if self.ended:
            callback()
        self._end_callbacks.append(callback)

    async def wait(self) -> None:
        """Wait until the process has ended."""
        await self._ended.wait()

    async def is_ending(self) -> bool:
        """Report whether it is about to end: its sockets close shortly before it ends."""
        await wait_at_most(self._ended, _ENDING_SECONDS)
        return self.ended

    async def end(self) -> bool:
        """Kill the process; return whether it has ended.

        A process that waits in the kernel, for instance for a disk, stays until that is over.
        """
        self.kill()
        await wait_at_most(self._ended, END_SECONDS)
        return self.ended

    def kill(self) -> None:
        self._send(signal.SIGKILL)

    def terminate(self) -> None:
        """Ask the process to shut down."""
        self._send(signal.SIGTERM)

    def _send(self, signal_number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError, OSError):
            if self._pidfd >= 0:
                signal.pidfd_send_signal(self._pidfd, signal_number)

    def renice(self, niceness: int) -> None:
        """Set the nice value of all threads and of the session.

        With autogroups the scheduler compares nice values only within a session.
        """
        with contextlib.suppress(OSError):
            Path(f"/proc/{self.identity.pid}/autogroup").write_text(str(niceness), encoding="ascii")
        with contextlib.suppress(OSError):
            for thread in Path(f"/proc/{self.identity.pid}/task").iterdir():
                os.setpriority(os.PRIO_PROCESS, int(thread.name), niceness)

    def cpu_nanos(self) -> int:
        """Return the CPU time used so far.  Raises ProcessLookupError if it has ended."""
        return cpu_nanos(self.identity.pid)

    def waited_nanos(self) -> Mapping[str, int]:
        """Return how long each thread has waited for a CPU; empty without schedstat."""
        wait_nanos = {}
        with contextlib.suppress(OSError):
            for thread in Path(f"/proc/{self.identity.pid}/task").iterdir():
                with contextlib.suppress(OSError):  # it has just ended
                    wait_nanos[thread.name] = int((thread / "schedstat").read_bytes().split()[1])
        return wait_nanos

    def resident_bytes(self) -> int:
        """Return the resident memory.  Raises ProcessLookupError if it has ended."""
        try:
            pages = Path(f"/proc/{self.identity.pid}/statm").read_bytes().split()[1]
        except OSError:
            raise ProcessLookupError(self.identity.pid) from None
        return int(pages) * _PAGE_BYTES

    def ran_nanos(self) -> int:
        """Return the CPU time of the main thread; 0 without schedstat, or if it has ended."""
        with contextlib.suppress(OSError):
            fdinfo = Path(f"/proc/{self.identity.pid}/schedstat").read_bytes()
            return int(fdinfo.split()[0])
        return 0

    def pulse(self) -> Pulse | None:
        """Return the activity; None if it has ended, or without schedstat: then it may be slow."""
        state, ran = state_of(self.identity.pid), self.ran_nanos()
        return Pulse(ran, runnable=state[0] == "R") if state is not None and ran else None

    def release(self) -> None:
        """Stop watching the process; a child is reaped as soon as it has ended.

        An adopted one is init's to reap.
        """
        if self._pidfd >= 0:
            loop, pidfd, self._pidfd = asyncio.get_running_loop(), self._pidfd, -1
            loop.remove_reader(pidfd)
            if self.identity not in _RELEASED and _is_running_child(pidfd):
                _RELEASED.add(self.identity)
                loop.add_reader(pidfd, _reap, loop, pidfd, self.identity)
            else:
                os.close(pidfd)

    def _on_end(self) -> None:
        self.release()
        self._ended.set()
        for callback in self._end_callbacks:
            callback()


def _is_running_child(pidfd: int) -> bool:
    """Report whether a process is a child that runs; one that has ended is reaped."""
    try:
        return os.waitid(os.P_PIDFD, pidfd, os.WEXITED | os.WNOHANG) is None
    except ChildProcessError:
        return False


def _reap(loop: asyncio.AbstractEventLoop, pidfd: int, identity: Identity) -> None:
    loop.remove_reader(pidfd)
    _is_running_child(pidfd)
    os.close(pidfd)
    _RELEASED.discard(identity)


def cpu_nanos(pid: int) -> int:
    """Return the CPU time of any process, without privileges, by its CPU clock."""
    try:
        return time.clock_gettime_ns((~pid << 3) | 2)
    except OSError:
        raise ProcessLookupError(pid) from None


def write_record(directory: Path, identity: Identity) -> None:
    """Write the record; without disk space the holder of the lock is searched instead."""
    with contextlib.suppress(OSError):
        files.replace(directory / RECORD, msgspec.json.encode(identity))


def read_record(directory: Path) -> Identity | None:
    return files.read_json(directory / RECORD, Identity)
