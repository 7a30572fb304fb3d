"""Makes the claim of each DataVolume, and says how far filling it is and what DataSources mean."""

from corral.controllers.datavolume.datasource_controller import controller as references
from corral.controllers.datavolume.datavolume_controller import controller

__all__ = ["controller", "references"]
