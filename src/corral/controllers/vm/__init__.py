"""Controller of VirtualMachines: creates and deletes the VMI as the run strategy says."""

from corral.controllers.vm.vm_controller import controller

__all__ = ["controller"]
