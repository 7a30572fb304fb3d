"""Disks that outlive their machines: a directory of volumes, and who gives them to claims.

``Storage`` keeps the files and knows nothing of the API; ``provisioner`` is the provisioner that
makes a PersistentVolume of each volume.
"""

from corral.node.storage.disk_space import Room
from corral.node.storage.error import InUse, NoRoom, NoSuchVolume, StorageError
from corral.node.storage.storage import Storage
from corral.node.storage.volume import Stored

__all__ = ["InUse", "NoRoom", "NoSuchVolume", "Room", "Storage", "StorageError", "Stored"]
