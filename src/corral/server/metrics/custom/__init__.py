"""Metrics of a Prometheus for autoscalers, as prometheus-adapter serves them on Kubernetes.

The groups are custom.metrics.k8s.io, for objects of this API, and external.metrics.k8s.io, for all
else.  ``metric_rules`` map metrics to queries, ``prometheus`` runs these, ``adapter`` serves them.
"""

from corral.server.metrics.custom.adapter import Adapter
from corral.server.metrics.custom.metric_rules import RulesError

__all__ = ["Adapter", "RulesError"]
