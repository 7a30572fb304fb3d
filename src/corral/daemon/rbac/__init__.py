"""The bootstrap roles and bindings of Kubernetes and KubeVirt, and their reconciliation."""

from corral.daemon.rbac.reconcile import reconcile_rbac

__all__ = ["reconcile_rbac"]
