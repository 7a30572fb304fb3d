"""Brings a machine's object from its creation to its end: a pod, phases, conditions, finalizer."""

from corral.controllers.vmi.vmi_controller import controller

__all__ = ["controller"]
