"""Controller of evacuations: migrations of VMIs that are to leave their node."""

from corral.controllers.evacuation.evacuation_controller import controller

__all__ = ["controller"]
