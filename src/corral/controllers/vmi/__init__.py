"""Controller of VirtualMachineInstances: launcher pod, phases, conditions, finalizer."""

from corral.controllers.vmi.vmi_controller import controller

__all__ = ["controller"]
