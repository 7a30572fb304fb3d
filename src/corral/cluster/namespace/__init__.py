"""Empties a namespace that is being deleted, then lets it go."""

from corral.cluster.namespace.loop import controller

__all__ = ["controller"]
