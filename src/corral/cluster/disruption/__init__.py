"""Reckons how many pods each PodDisruptionBudget lets go: Kubernetes' disruption controller.

``expected`` says how many pods there should be, ``reckoning`` what follows from that and from the
pods that there are; the latter is pure.  ``loop`` reads the caches and writes what changed.  That
an eviction takes from a budget what is said here is the server's part (``server.eviction``).
"""

from corral.cluster.disruption.loop import controller

__all__ = ["controller"]
