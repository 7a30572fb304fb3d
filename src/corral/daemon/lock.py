"""The lock of a data directory, which one manager or agent holds, and how to stop that process.

The lock is the kernel's (flock), so it ends with its holder; the process id in the file is only for
signals.
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
        """Send SIGTERM; return True once the process has ended, False after these seconds."""
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
def acquire(lock: Path, *, url: str) -> Iterator[None]:
    """Hold the lock of a data directory in the block.  Raises AlreadyRunning."""
    while True:
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise AlreadyRunning(_read(lock)) from None
            if not _is_at(lock, descriptor):
                continue  # its last holder deleted the file: others would not see this lock
            _write(lock, descriptor, json.dumps({"pid": os.getpid(), "url": url}).encode())
            yield
            return
        finally:
            os.close(descriptor)


def find(lock: Path) -> Manager | None:
    """Return the process that holds the lock now, or None."""
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


def _write(lock: Path, descriptor: int, content: bytes) -> None:
    """Replace the content in the block that the file has already: the disk may be full.

    Raises OSError with the file's name, which a descriptor does not give.
    """
    try:
        os.pwrite(descriptor, content, 0)
        os.ftruncate(descriptor, len(content))
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(lock)) from error


def _is_at(lock: Path, descriptor: int) -> bool:
    """Return whether an open file is still the one at this path."""
    try:
        return os.path.samestat(os.fstat(descriptor), lock.stat())
    except FileNotFoundError:
        return False


def _read(lock: Path) -> Manager | None:
    try:
        content = json.loads(lock.read_text())
        return Manager(pid=int(content["pid"]), url=str(content["url"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None
