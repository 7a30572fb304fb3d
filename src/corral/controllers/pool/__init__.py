"""Keeps as many numbered VirtualMachines as a VirtualMachinePool asks for, and as it asks for."""

from corral.controllers.pool.letting_go import controller as letting_go
from corral.controllers.pool.loop import controller

__all__ = ["controller", "letting_go"]
