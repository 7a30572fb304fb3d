"""Controller of VirtualMachinePools: keeps ``spec.replicas`` numbered VirtualMachines."""

from corral.controllers.pool.pool_controller import controller
from corral.controllers.pool.release import controller as finalizer_controller

__all__ = ["controller", "finalizer_controller"]
