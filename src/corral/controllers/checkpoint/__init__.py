"""Controller of checkpoints whose source is on no node."""

from corral.controllers.checkpoint.checkpoint_controller import controller

__all__ = ["controller"]
