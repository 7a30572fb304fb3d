"""Gives claims their volumes, and keeps both for as long as somebody uses them."""

from corral.cluster.claims.default_class import controller as default_class
from corral.cluster.claims.loop import controller as binder
from corral.cluster.claims.protection import controller as protection

__all__ = ["binder", "default_class", "protection"]
