"""Names of container images, and the paths by which hosts give each other images and volumes."""

from typing import Final

IMAGES_PATH: Final = "/corral/images"
"""Path at which the API server, and the API of each node, serve images to nodes of other hosts."""
VOLUMES_PATH: Final = "/corral/volumes"
"""Path at which they serve volumes to nodes of other hosts that clone a claim."""


def pull_policy(image: str) -> str:
    """Return Kubernetes' default of ``imagePullPolicy``.

    It is Always for the tag ``latest`` or none, else IfNotPresent.
    """
    name = image.rpartition("/")[2]
    if "@" not in name and name.partition(":")[2] in ("", "latest"):
        return "Always"
    return "IfNotPresent"
