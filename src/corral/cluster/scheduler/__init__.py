"""Scheduler: assigns pods to nodes, as kube-scheduler does."""

from corral.cluster.scheduler.scheduler import controller

__all__ = ["controller"]
