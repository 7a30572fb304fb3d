"""Taint eviction: evicts pods from tainted nodes, and replaces what silent nodes cannot end."""

from corral.cluster.taint_eviction.taint_eviction_controller import controller

__all__ = ["controller"]
