"""The roles and bindings that every cluster has, and how they are kept as they should be.

``kubernetes`` and ``kubevirt`` say what there is; ``reconcile`` brings it into the store.
"""

from corral.daemon.rbac.reconcile import reconcile_rbac

__all__ = ["reconcile_rbac"]
