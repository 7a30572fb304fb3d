"""Keeps as many machines of a kind as a VirtualMachineInstanceReplicaSet asks for."""

from corral.controllers.replicaset.replicaset_controller import controller

__all__ = ["controller"]
