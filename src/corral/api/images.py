"""Names of container images, and the paths at which hosts reach each other beside the API."""

from typing import Final

IMAGES_PATH: Final = "/corral/images"
"""Path at which the API server, and the API of each node, serve images to nodes of other hosts."""
VOLUMES_PATH: Final = "/corral/volumes"
"""Path at which they serve volumes to nodes of other hosts that clone a claim."""
MIGRATIONS_PATH: Final = "/corral/migrations"
"""Path of the streams by which a guest migrates to a node, and of the files that it takes along."""
HOST_PATHS: Final = frozenset({IMAGES_PATH, VOLUMES_PATH, MIGRATIONS_PATH})
"""Paths beside the API that a host answers to other hosts."""


def pull_policy(image: str) -> str:
    """Return Kubernetes' default of ``imagePullPolicy``.

    It is Always for the tag ``latest`` or none, else IfNotPresent.
    """
    name = image.rpartition("/")[2]
    if "@" not in name and name.partition(":")[2] in ("", "latest"):
        return "Always"
    return "IfNotPresent"
