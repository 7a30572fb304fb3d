"""Makes the claim of each DataVolume, and says how far filling it is."""

from corral.controllers.datavolume.loop import controller

__all__ = ["controller"]
