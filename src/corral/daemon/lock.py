"""The one manager process that a data directory may have: its lock, its process, its end.

The lock is the kernel's (flock), so it dies with its holder; the process id in the file only says
whom to signal.
"""

import fcntl
import json
import os
import select
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path


class AlreadyRunning(Exception):
    """Another manager holds the data directory."""

    def __init__(self, manager: "Manager | None") -> None:
        super().__init__("another manager holds the data directory")
        self.manager = manager


@dataclass(frozen=True, slots=True)
class Manager:
    """A running manager: its process id and the URL of its API."""

    pid: int
    url: str

    def stop(self, seconds: float) -> bool:
        """Ask the process to end; True once it has, False when the seconds are over."""
        try:
            descriptor = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return True
        try:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(descriptor, signal.SIGTERM)
            return bool(select.select([descriptor], [], [], seconds)[0])
        finally:
            os.close(descriptor)


@contextmanager
def hold(lock: Path, *, url: str) -> Iterator[None]:
    """Hold a data directory for this process; raises AlreadyRunning when another one does."""
    while True:
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise AlreadyRunning(_read(lock)) from None
            if not _is_at(lock, descriptor):
                continue  # whoever held it took it away: the next to come would not see this one
            _write(lock, descriptor, json.dumps({"pid": os.getpid(), "url": url}).encode())
            yield
            return
        finally:
            os.close(descriptor)


def find(lock: Path) -> Manager | None:
    """The manager that holds this lock now, or None."""
    try:
        descriptor = os.open(lock, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _read(lock)
    finally:
        os.close(descriptor)
    return None


def _write(lock: Path, descriptor: int, said: bytes) -> None:
    """Replace what a file says, in the block that it has already: the disk may be full.

    Raises OSError by the file's name, which a descriptor does not tell.
    """
    try:
        os.pwrite(descriptor, said, 0)
        os.ftruncate(descriptor, len(said))
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(lock)) from error


def _is_at(lock: Path, descriptor: int) -> bool:
    """Whether a file that is open is still the one of this name."""
    try:
        return os.path.samestat(os.fstat(descriptor), lock.stat())
    except FileNotFoundError:
        return False


def _read(lock: Path) -> Manager | None:
    try:
        said = json.loads(lock.read_text())
        return Manager(pid=int(said["pid"]), url=str(said["url"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None
