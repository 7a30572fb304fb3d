"""Backups: all objects, with the keys and address ranges that clients depend on."""

from corral.daemon.backup.archive import BackupError, Head
from corral.daemon.backup.backup import Restored, check, make, restore, restore_damaged, sweep
from corral.store.offline import RestoreResult

__all__ = [
    "BackupError",
    "Head",
    "RestoreResult",
    "Restored",
    "check",
    "make",
    "restore",
    "restore_damaged",
    "sweep",
]
