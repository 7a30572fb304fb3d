"""Images: where the disks of containers images come from, and where they are kept.

The store hands out read-only disks by image name.  Whatever it is given, by a registry or by a
user, is taken for hostile until ``qcow.inspect`` has passed it.
"""

from corral.node.images.credentials import Credential, SecretName, from_secret
from corral.node.images.error import ImageError
from corral.node.images.limits import Limits
from corral.node.images.progress import Progress, Report

__all__ = [
    "Credential",
    "ImageError",
    "Limits",
    "Progress",
    "Report",
    "SecretName",
    "from_secret",
]
