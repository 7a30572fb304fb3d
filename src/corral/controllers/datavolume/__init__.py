"""Makes the claim of each DataVolume, and says how far filling it is and what DataSources mean."""

from corral.controllers.datavolume.loop import controller
from corral.controllers.datavolume.references import controller as references

__all__ = ["controller", "references"]
