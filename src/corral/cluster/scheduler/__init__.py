"""Finds a node for each pod, as kube-scheduler does where there is a cluster."""

from corral.cluster.scheduler.scheduler import controller

__all__ = ["controller"]
