"""Workload updates: migrates or evicts VMIs that run in an outdated launcher."""

from corral.controllers.workload_update.outdated_label import controller as labels
from corral.controllers.workload_update.workload_update_controller import controller

__all__ = ["controller", "labels"]
