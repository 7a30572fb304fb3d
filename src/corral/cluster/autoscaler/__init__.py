"""Sets how many of something there are, by how busy they are: Kubernetes' horizontal autoscaler.

``replicas`` reckons how many one metric asks for, ``behavior`` how fast that may be followed; both
are pure.  ``metrics`` asks what was measured, ``proposals`` joins it with the arithmetic for each
kind of metric, ``targets`` reads and changes what is scaled, ``status`` holds what is told of it
all, and ``autoscaler`` looks at every autoscaler each 15 seconds.
"""

from corral.cluster.autoscaler.autoscaler import controller

__all__ = ["controller"]
