"""Backups: all objects and what makes their users find them again, made and restored."""

from corral.daemon.backup.archive import BackupError, Head
from corral.daemon.backup.backup import Restored, check, make, mend, restore, sweep
from corral.store.offline import RestoreResult

__all__ = [
    "BackupError",
    "Head",
    "RestoreResult",
    "Restored",
    "check",
    "make",
    "mend",
    "restore",
    "sweep",
]
