"""Gives claims their volumes, and keeps both for as long as somebody uses them."""

from corral.cluster.persistent_volumes.binder import controller as binder
from corral.cluster.persistent_volumes.default_storage_class import controller as default_class
from corral.cluster.persistent_volumes.protection import controller as protection

__all__ = ["binder", "default_class", "protection"]
