"""Controllers of CDI's DataVolumes and DataSources."""

from corral.controllers.datavolume.datasource_controller import controller as datasources
from corral.controllers.datavolume.datavolume_controller import controller

__all__ = ["controller", "datasources"]
