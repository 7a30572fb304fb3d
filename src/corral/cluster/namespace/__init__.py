"""Controller of namespace deletion."""

from corral.cluster.namespace.namespace_controller import controller

__all__ = ["controller"]
