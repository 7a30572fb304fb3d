"""Keeps as many numbered VirtualMachines as a VirtualMachinePool asks for, and as it asks for."""

from corral.controllers.pool.pool_controller import controller
from corral.controllers.pool.release import controller as letting_go

__all__ = ["controller", "letting_go"]
