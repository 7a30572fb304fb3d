"""Controllers of VirtualMachineClaims: they bind claims to spares, and follow the bound ones."""

from corral.controllers.claim.binder import binder
from corral.controllers.claim.claim_controller import controller

__all__ = ["binder", "controller"]
