"""Keeps the machine of each VirtualMachine as its run strategy says."""

from corral.controllers.vm.vm_controller import controller

__all__ = ["controller"]
