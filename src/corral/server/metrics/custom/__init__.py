"""Serves what a Prometheus knows as metrics that autoscalers can read.

The groups are custom.metrics.k8s.io, for objects of this API, and external.metrics.k8s.io, for all
else; what an adapter for Prometheus does on Kubernetes.  ``metric_rules`` says which query answers
which metric, ``prometheus`` asks it, ``adapter`` answers.
"""

from corral.server.metrics.custom.adapter import Adapter
from corral.server.metrics.custom.metric_rules import RulesError

__all__ = ["Adapter", "RulesError"]
