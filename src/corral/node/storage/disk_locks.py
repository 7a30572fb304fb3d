"""Exclusive locks of disks, for operations that no machine may write them during."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

from corral.node.storage.error import InUse
from corral.node.storage.volume import StoredVolume


class DiskLocks(Protocol):
    """The locks of a storage's disks."""

    def create(self, handle: str) -> None:
        """Prepare the lock of a volume that is not visible yet; keep a present one."""

    def exclusive(self, volume: StoredVolume) -> AbstractContextManager[None]:
        """Hold the lock of a volume's disk.  Raises InUse."""

    def remove(self, handle: str) -> None:
        """Remove what a removed volume's lock has left."""


class FileLocks:
    """Locks of one host: flocks of the disks.

    A machine that writes a disk holds a shared flock on the open file; QEMU inherits the
    descriptor, so the lock lasts until QEMU has ended, however it ends.
    """

    def create(self, handle: str) -> None: ...

    def remove(self, handle: str) -> None: ...

    @contextmanager
    def exclusive(self, volume: StoredVolume) -> Iterator[None]:
        """Hold the exclusive lock of a volume's disk.  Raises InUse."""
        descriptor = os.open(volume.disk.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield
        except BlockingIOError:
            raise InUse(f"a machine writes volume {volume.handle}") from None
        finally:
            os.close(descriptor)
