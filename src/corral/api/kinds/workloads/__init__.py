"""Kinds that run containers: kept and answered for the sake of charts and clients, not acted upon.

Whoever writes one is warned.
"""

from corral.api.kinds.workloads.deployment import DEPLOYMENT

__all__ = ["KINDS"]

KINDS = (DEPLOYMENT,)
