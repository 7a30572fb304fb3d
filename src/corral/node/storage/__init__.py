"""Persistent volumes: disks that outlive machines, their provisioner and populator.

``Storage`` manages the files and does not use the API; ``provisioner`` creates a PersistentVolume
for each volume.
"""

from corral.node.storage.disk_space import Usage
from corral.node.storage.error import InsufficientSpace, InUse, NoSuchVolume, StorageError
from corral.node.storage.storage import Storage
from corral.node.storage.volume import StoredVolume

__all__ = [
    "InUse",
    "InsufficientSpace",
    "NoSuchVolume",
    "Storage",
    "StorageError",
    "StoredVolume",
    "Usage",
]
