"""Node-pressure eviction: frees images, then checkpoints, then evicts machines one at a time."""

from corral.node.pressure.eviction_manager import Pressure
from corral.node.pressure.thresholds import Threshold, parse_thresholds

__all__ = ["Pressure", "Threshold", "parse_thresholds"]
