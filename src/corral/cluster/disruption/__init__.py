"""Controller of PodDisruptionBudgets.

``expected_pods`` counts the expected pods, ``allowed_disruptions`` computes the status from these
and the observed pods; the latter is pure. ``disruption_controller`` reads the caches and writes
what changed. Evictions use up the budget in the server.
"""

from corral.cluster.disruption.disruption_controller import controller

__all__ = ["controller"]
