"""Processes as /proc shows them, and the lock that says whether one runs for a directory.

Of the standard library alone: the watchdog of a node imports this, and nothing else of corral.
"""

import contextlib
import fcntl
import os
from pathlib import Path
from typing import Final

LOCK: Final = "alive"
RECORD: Final = "process.json"
_DEAD_STATES: Final = frozenset("ZX")
"""States of processes that have ended, but are not reaped yet."""


def boot_id() -> str:
    """Return the id of the running boot."""
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def state_of(pid: int) -> tuple[str, int] | None:
    """Return the state letter of a living process, and its start in ticks (proc(5), stat).

    A process lives as long as any of its threads: after a kill one that waits in the kernel may
    remain, though the main thread has ended.
    """
    main = _stat(Path(f"/proc/{pid}"))
    return None if main is None or (main[0] in _DEAD_STATES and not _has_threads(pid)) else main


def _has_threads(pid: int) -> bool:
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        found = [_stat(thread) for thread in Path(f"/proc/{pid}/task").iterdir()]
        return any(each is not None and each[0] not in _DEAD_STATES for each in found)
    return False


def _stat(entry: Path) -> tuple[str, int] | None:
    try:
        stat = (entry / "stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    state, *rest = stat.rpartition(")")[2].split()
    return state, int(rest[18])


def acquire_lock(directory: Path) -> int | None:
    """Acquire the lock of a directory: a descriptor to inherit, or None while a process runs."""
    descriptor = os.open(directory / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


def runs(directory: Path) -> bool:
    """Report whether a process runs for this directory."""
    if not (directory / LOCK).exists():
        return False
    descriptor = acquire_lock(directory)
    if descriptor is None:
        return True
    os.close(descriptor)
    return False


def lock_holder(lock: Path) -> int | None:
    """Return the id of the process that holds a lock; None if there is none.

    Other processes may have the file open, for instance to copy it; fdinfo shows the lock only for
    its holder.
    """
    lock_stat = lock.stat()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        with contextlib.suppress(OSError):
            for descriptor in (entry / "fd").iterdir():
                with contextlib.suppress(OSError):
                    if os.path.samestat(descriptor.stat(), lock_stat) and _locks(descriptor):
                        return int(entry.name)
    return None


def _locks(descriptor: Path) -> bool:
    """Report whether a descriptor holds a lock (fdinfo of Linux)."""
    fdinfo = descriptor.parent.parent / "fdinfo" / descriptor.name
    return "FLOCK" in fdinfo.read_text(encoding="ascii")
