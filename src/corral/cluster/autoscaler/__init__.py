"""HorizontalPodAutoscaler controller.

``replicas`` computes the replicas that one metric proposes, ``behavior`` limits the rate of change;
both are pure. ``metrics_client`` fetches metrics, ``proposals`` joins it with the arithmetic for
each metric source, ``targets`` reads and writes the scale subresource, ``status`` builds the
status, and ``autoscaler`` syncs every autoscaler each 15 seconds.
"""

from corral.cluster.autoscaler.autoscaler import controller

__all__ = ["controller"]
