"""Names of container images."""

from typing import Final

IMAGES_PATH: Final = "/corral/images"
"""Path at which the API server, and the API of each node, serve images to nodes of other hosts."""


def pull_policy(image: str) -> str:
    """Return Kubernetes' default of ``imagePullPolicy``.

    It is Always for the tag ``latest`` or none, else IfNotPresent.
    """
    name = image.rpartition("/")[2]
    if "@" not in name and name.partition(":")[2] in ("", "latest"):
        return "Always"
    return "IfNotPresent"
