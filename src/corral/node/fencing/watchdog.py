"""The watchdog of a node: ends exclusive machines when the node's Lease was not renewed in time.

A process of its own, which the agent starts and which outlives it: it acts when the agent is dead
or hangs.  It imports nothing but the standard library and ``node/host/proc``, so it is small, and
sleeps until the Lease would expire.

It finds machines by what lies in their directories: ``machine.json`` says whether two of them must
never run, ``process.json`` and the lock say which process each one is.
"""

import contextlib
import ctypes
import json
import os
import signal
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from corral.node.host.proc import LOCK, RECORD, boot_id, lock_holder, runs, state_of

RENEWED: Final = "renewed"
"""The file in a node's directory whose mtime is the last renewal of its Lease (see ``lease``)."""
FENCED: Final = "fenced"
"""The file in a machine's directory that says that the watchdog has ended it."""
MACHINES: Final = "machines"
MACHINE_RECORD: Final = "machine.json"
_REPEAT_SECONDS: Final = 5.0
"""Pause between two checks once the Lease has expired: for what an agent that hung had begun."""
_TIMER_ABSTIME: Final = 1


def now() -> float:
    """Return seconds since the host's boot, counting those in which it was suspended."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def last_renewal(node: Path, present: float) -> float | None:
    """Return when the Lease was last renewed, as ``now`` counts; None if the node is gone.

    -inf stands for never: the file is new, or of an earlier boot, whose times lie ahead.
    """
    try:
        renewed = (node / RENEWED).stat().st_mtime
    except FileNotFoundError:
        return None
    return renewed if renewed <= present else float("-inf")


def watch(node: Path, seconds: float) -> None:
    """End exclusive machines whenever no renewal is younger; return when the node is gone.

    A failure, such as a host without free descriptors, ends no watchdog: it tries again.
    """
    renewed = float("-inf")
    while True:
        with contextlib.suppress(OSError):  # then the renewal before counts
            latest = last_renewal(node, now())
            if latest is None:
                return
            renewed = latest
        deadline = renewed + seconds
        if now() < deadline:
            _sleep_until(deadline)
        else:
            with contextlib.suppress(OSError):
                end_exclusive(node)
            time.sleep(_REPEAT_SECONDS)


def _sleep_until(deadline: float) -> None:
    """Sleep by the clock of ``now``: after a suspension of the host a deadline is over at once."""
    seconds, rest = divmod(deadline, 1)
    due = (ctypes.c_long * 2)(int(seconds), int(rest * 1e9))  # struct timespec
    ctypes.CDLL(None).clock_nanosleep(time.CLOCK_BOOTTIME, _TIMER_ABSTIME, due, None)


def end_exclusive(node: Path) -> None:
    """Kill the processes of all exclusive machines of a node, with their process groups.

    Machine by machine: one whose process cannot be found or killed keeps no other alive.
    """
    groups: dict[int, list[int]] | None = None
    for machine in exclusive_machines(node):
        with contextlib.suppress(OSError):
            if (leader := process_of(machine)) is not None:
                if groups is None:  # once, where anything runs at all
                    groups = _groups()
                _kill(machine, leader, groups.get(leader, ()))


def _kill(machine: Path, leader: int, group: Iterable[int]) -> None:
    """Kill a machine's process and its group, if the process is still the machine's.

    Each machine's process is in a group of its own, with the helpers that it starts.
    """
    with contextlib.ExitStack() as stack:
        members = [_pin(leader, stack)]
        for pid in group:
            with contextlib.suppress(OSError):
                descriptor = _pin(pid, stack)
                if os.getpgid(pid) == leader:
                    members.append(descriptor)
        # Checked once the members are pinned: no pid of theirs was another process's before.
        if process_of(machine) != leader:
            return
        for descriptor in members:
            with contextlib.suppress(OSError):
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)
    (machine / FENCED).touch()


def _pin(pid: int, stack: contextlib.ExitStack) -> int:
    """Return a pidfd, which is closed with the stack."""
    descriptor = os.pidfd_open(pid)
    stack.callback(os.close, descriptor)
    return descriptor


def _groups() -> dict[int, list[int]]:
    """Return the processes of the host by their groups, without the leaders.

    What cannot be read is left out: a leader ends without its helpers rather than not at all.
    """
    groups: dict[int, list[int]] = {}
    with contextlib.suppress(OSError):
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError, ValueError):
                pid = int(entry.name)
                if (group := os.getpgid(pid)) != pid:
                    groups.setdefault(group, []).append(pid)
    return groups


def exclusive_machines(node: Path) -> Iterator[Path]:
    """Iterate over the directories of machines of which two must never run, and that may run.

    One whose record cannot be read counts: it is not known to be harmless.
    """
    with contextlib.suppress(FileNotFoundError):
        for machine in sorted((node / MACHINES).iterdir()):
            record = _last_state(machine / MACHINE_RECORD)
            if record.get("exclusive", not record) and record.get("stage") != "Ended":
                yield machine


def process_of(machine: Path) -> int | None:
    """Return the process that runs for a machine, by its record or else its lock."""
    identity = _last_state(machine / RECORD)
    pid, started = identity.get("pid"), identity.get("started_ticks")
    if pid and identity.get("boot_id") == boot_id() and _started(pid) == started:
        return int(pid)
    return lock_holder(machine / LOCK) if runs(machine) else None


def _started(pid: int) -> int | None:
    state = state_of(pid)
    return state[1] if state is not None else None


def _last_state(path: Path) -> dict[str, Any]:
    """Return the last state of a journal (``files.append_state``); empty if it cannot be read."""
    try:
        *whole, rest = path.read_bytes().split(b"\n")
        found = json.loads(next(filter(None, reversed(whole)), rest))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def main() -> None:
    """Run as ``watchdog.py NODE_DIRECTORY SECONDS``."""
    watch(Path(sys.argv[1]), float(sys.argv[2]))
