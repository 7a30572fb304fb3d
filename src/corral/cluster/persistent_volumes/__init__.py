"""Controllers of claims and volumes: binding, protection, the default storage class."""

from corral.cluster.persistent_volumes.binder import controller as binder
from corral.cluster.persistent_volumes.default_storage_class import controller as default_class
from corral.cluster.persistent_volumes.protection import controller as protection

__all__ = ["binder", "default_class", "protection"]
