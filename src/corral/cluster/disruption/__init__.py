"""Reckons how many pods each PodDisruptionBudget lets go: Kubernetes' disruption controller.

``expected_pods`` says how many pods there should be, ``allowed_disruptions`` what follows from that
and from the pods that there are; the latter is pure.  ``disruption_controller`` reads the caches
and writes what changed.  That an eviction takes from a budget what is said here is the server's
part (``server.eviction``).
"""

from corral.cluster.disruption.disruption_controller import controller

__all__ = ["controller"]
