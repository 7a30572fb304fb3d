"""The Lease of a node: where it lies, how long it lasts, and what follows when it expires."""

from typing import Final

NAMESPACE: Final = "kube-node-lease"
SECONDS: Final = 40.0
"""Time without renewal after which a node is Unknown (node-monitor-grace-period).

After this time the node itself ends the machines of which two must never run."""
WATCHDOG_SECONDS: Final = 41.0
"""The same for the node's watchdog, which does it if the agent does not."""
REPLACEMENT_SECONDS: Final = 50.0
"""Time for which the control plane must have seen no renewal before it replaces such a machine."""
SELF_FENCING: Final = "SelfFencing"
"""Condition of a Node: whether it ends these machines by itself.  Only then are they replaced."""
