"""Empties a namespace that is being deleted, then lets it go."""

from corral.cluster.namespace.namespace_controller import controller

__all__ = ["controller"]
