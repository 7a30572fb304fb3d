"""Controller of VirtualMachineWarmPools: keeps spares ready for sets and claims."""

from corral.controllers.warmpool.warmpool_controller import controller

__all__ = ["controller"]
