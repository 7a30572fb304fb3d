"""The Lease of a node: where it lies, and how long it lasts."""

from typing import Final

NAMESPACE: Final = "kube-node-lease"
SECONDS: Final = 40.0
"""Time without renewal after which a node is Unknown (node-monitor-grace-period)."""
