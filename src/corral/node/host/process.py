"""A process that outlives the manager, recognised when the manager is back: QEMU, and helpers.

Who runs is told by a lock, not by a number: the process inherits a descriptor with an flock on
``alive`` in its directory, and the kernel lets go of it when the last holder dies, however it dies.
So "does anything run for this directory?" has one answer at any moment, also between the fork and
the line that records the pid.  The record (pid, start time, boot) names the process for signals;
where the manager died too early to write it, the holder of the lock is looked up in /proc.

The end of a process is told by its pidfd, which works for processes that are not our children.
"""

import asyncio
import contextlib
import fcntl
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

LOCK = "alive"
RECORD = "process.json"
END_SECONDS = 10.0
"""So long a process may take to be gone when it was killed."""
_LAST_BREATH_SECONDS = 2.0
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_ENVIRONMENT = {
    "LC_ALL": "C.UTF-8",
    # A heap for each thread (glibc's malloc) makes an idle machine's QEMU larger by 1 to 3 MB.
    "MALLOC_ARENA_MAX": "1",
}
_DEAD = frozenset("ZX")
"""Letters of processes that have ended, and wait for their parents to hear of it."""
OOM_SCORE_ADJ = "500"  # when memory runs out, what the manager can start again goes first


class Identity(msgspec.Struct, frozen=True):
    """Names one process for good: a pid alone is used again."""

    pid: int
    started_ticks: int
    boot_id: str


def boot_id() -> str:
    """Identifies the running boot of this host."""
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def identify(pid: int) -> Identity | None:
    """The identity of a living process."""
    state = _state(pid)
    return Identity(pid, state[1], boot_id()) if state is not None else None


def _state(pid: int) -> tuple[str, int] | None:
    """The letter of a living process's state, and its start in ticks (proc(5), stat).

    It lives for as long as any of its threads does: one that waits for the kernel may be left of a
    process that was killed, though its main thread has ended.
    """
    main = _stat(Path(f"/proc/{pid}"))
    return None if main is None or (main[0] in _DEAD and not _has_threads(pid)) else main


def _has_threads(pid: int) -> bool:
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        found = [_stat(thread) for thread in Path(f"/proc/{pid}/task").iterdir()]
        return any(one is not None and one[0] not in _DEAD for one in found)
    return False


def _stat(entry: Path) -> tuple[str, int] | None:
    try:
        stat = (entry / "stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    state, *rest = stat.rpartition(")")[2].split()
    return state, int(rest[18])


def hold(directory: Path) -> int | None:
    """Take the lock of a directory: a descriptor to pass on, or None while something runs."""
    descriptor = os.open(directory / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


def runs(directory: Path) -> bool:
    """Whether a process runs for this directory."""
    if not (directory / LOCK).exists():
        return False
    descriptor = hold(directory)
    if descriptor is None:
        return True
    os.close(descriptor)
    return False


def keep_to_ourselves() -> None:
    """Let no later child inherit what this process has inherited from its own parent."""
    for entry in Path("/proc/self/fd").iterdir():
        if (descriptor := int(entry.name)) > 2:
            with contextlib.suppress(OSError):
                os.set_inheritable(descriptor, False)  # noqa: FBT003


def launch(command: Sequence[str], *, descriptors: Sequence[int], output: int) -> int:
    """Start a command in its own session and answer its pid; only ``descriptors`` are inherited.

    It is born into the namespaces of the calling thread.  ``posix_spawn`` does not copy the
    manager's page tables, so a start costs the same however large the manager has grown.  Raises
    FileNotFoundError where the program is missing.
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
    """The process that runs for a directory, by its record or else by its lock."""
    identity = read_record(directory)
    if identity is not None and identify(identity.pid) == identity:
        return identity
    return _holder(directory / LOCK) if runs(directory) else None


class Pulse(NamedTuple):
    """Of a process's main thread: how long it has run, and whether it runs or waits for its turn.

    One that has not run between two looks, and did not wait for a processor, has done nothing.
    """

    ran_nanos: int
    runnable: bool


def stood_still(before: Pulse | None, after: Pulse | None) -> bool:
    """Whether a process that lives has done nothing between two looks, though it could have."""
    if before is None or after is None:
        return False
    return before == after and not after.runnable


class Process:
    """A running process, our child or not."""

    def __init__(self, identity: Identity, pidfd: int) -> None:
        self.identity = identity
        self._pidfd = pidfd
        self._ended = asyncio.Event()
        self._told: list[Callable[[], None]] = []
        asyncio.get_running_loop().add_reader(pidfd, self._on_end)

    @classmethod
    def spawn(
        cls, command: Sequence[str], directory: Path, *, descriptors: Sequence[int], output: int
    ) -> "Process":
        """Launch a command for a directory, and watch it.  Raises FileNotFoundError."""
        return cls.of_child(launch(command, descriptors=descriptors, output=output), directory)

    @classmethod
    def of_child(cls, pid: int, directory: Path) -> "Process":
        """Watch and record a process that was launched for a directory a moment ago."""
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
        """The process that runs for a directory, started by an earlier manager."""
        identity = await asyncio.to_thread(find, directory)  # it may have to look at all processes
        if identity is None:
            return None
        try:
            pidfd = os.pidfd_open(identity.pid)
        except ProcessLookupError:
            return None
        if identify(identity.pid) != identity:  # it ended, and its number was given away
            os.close(pidfd)
            return None
        write_record(directory, identity)
        return cls(identity, pidfd)

    @property
    def ended(self) -> bool:
        return self._ended.is_set()

    def on_end(self, tell: Callable[[], None]) -> None:
        """Call something when the process has ended; at once if it has."""
        if self.ended:
            tell()
        self._told.append(tell)

    async def wait(self) -> None:
        """Until the process has ended."""
        await self._ended.wait()

    async def ends(self) -> bool:
        """Whether it is just about to end: its sockets close a little before it is gone."""
        await wait_at_most(self._ended, _LAST_BREATH_SECONDS)
        return self.ended

    async def end(self) -> bool:
        """Kill it; answers whether it is gone.

        One that waits for the kernel, say for a disk that does not answer, stays until that ends.
        """
        self.kill()
        await wait_at_most(self._ended, END_SECONDS)
        return self.ended

    def kill(self) -> None:
        self._send(signal.SIGKILL)

    def terminate(self) -> None:
        """Ask it to put its things in order and end."""
        self._send(signal.SIGTERM)

    def _send(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError, OSError):
            if self._pidfd >= 0:
                signal.pidfd_send_signal(self._pidfd, number)

    def renice(self, niceness: int) -> None:
        """Set the niceness of every thread that it has, and of its session.

        Where the kernel groups processes by sessions, threads are nice to those of theirs only.
        """
        with contextlib.suppress(OSError):
            Path(f"/proc/{self.identity.pid}/autogroup").write_text(str(niceness), encoding="ascii")
        with contextlib.suppress(OSError):
            for thread in Path(f"/proc/{self.identity.pid}/task").iterdir():
                os.setpriority(os.PRIO_PROCESS, int(thread.name), niceness)

    def cpu_nanos(self) -> int:
        """Processor time used so far.  Raises ProcessLookupError when it has ended."""
        return cpu_nanos(self.identity.pid)

    def waited_nanos(self) -> Mapping[str, int]:
        """How long each thread has waited for a processor; empty where nobody tells."""
        waited = {}
        with contextlib.suppress(OSError):
            for thread in Path(f"/proc/{self.identity.pid}/task").iterdir():
                with contextlib.suppress(OSError):  # it has just ended
                    waited[thread.name] = int((thread / "schedstat").read_bytes().split()[1])
        return waited

    def resident_bytes(self) -> int:
        """Memory that it holds now.  Raises ProcessLookupError when it has ended."""
        try:
            pages = Path(f"/proc/{self.identity.pid}/statm").read_bytes().split()[1]
        except OSError:
            raise ProcessLookupError(self.identity.pid) from None
        return int(pages) * _PAGE_BYTES

    def ran_nanos(self) -> int:
        """How long its main thread has run; 0 where nobody tells, or when it has ended."""
        with contextlib.suppress(OSError):
            told = Path(f"/proc/{self.identity.pid}/schedstat").read_bytes()
            return int(told.split()[0])
        return 0

    def pulse(self) -> Pulse | None:
        """None when it has ended, or where nobody tells: it may be slow then."""
        state, ran = _state(self.identity.pid), self.ran_nanos()
        return Pulse(ran, runnable=state[0] == "R") if state is not None and ran else None

    def release(self) -> None:
        """Stop watching it; it runs on."""
        if self._pidfd >= 0:
            asyncio.get_running_loop().remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = -1

    def _on_end(self) -> None:
        with contextlib.suppress(ChildProcessError):  # an adopted one is init's to reap
            os.waitid(os.P_PIDFD, self._pidfd, os.WEXITED)
        self.release()
        self._ended.set()
        for tell in self._told:
            tell()


def cpu_nanos(pid: int) -> int:
    """Processor time of another process, without privileges: its CPU clock (Linux's pid clocks)."""
    try:
        return time.clock_gettime_ns((~pid << 3) | 2)
    except OSError:
        raise ProcessLookupError(pid) from None


def write_record(directory: Path, identity: Identity) -> None:
    """Where there is no room for it, the holder of the lock is looked up instead."""
    with contextlib.suppress(OSError):
        files.replace(directory / RECORD, msgspec.json.encode(identity))


def read_record(directory: Path) -> Identity | None:
    return files.read_json(directory / RECORD, Identity)


def _holder(lock: Path) -> Identity | None:
    """The process that holds a lock: the one whose start was not recorded.

    Others may have the file open, say to copy it; the lock is shown at its holder's descriptor.
    """
    wanted = lock.stat()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        with contextlib.suppress(OSError):
            for descriptor in (entry / "fd").iterdir():
                with contextlib.suppress(OSError):
                    if os.path.samestat(descriptor.stat(), wanted) and _locks(descriptor):
                        return identify(int(entry.name))
    return None


def _locks(descriptor: Path) -> bool:
    """Whether a lock was taken through a descriptor (Linux's fdinfo)."""
    told = descriptor.parent.parent / "fdinfo" / descriptor.name
    return "FLOCK" in told.read_text(encoding="ascii")
