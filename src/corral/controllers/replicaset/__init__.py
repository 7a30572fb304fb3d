"""Controller of VirtualMachineInstanceReplicaSets: keeps ``spec.replicas`` VMIs of a template."""

from corral.controllers.replicaset.replicaset_controller import controller

__all__ = ["controller"]
