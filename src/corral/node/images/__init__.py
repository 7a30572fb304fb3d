"""Images: pulling and importing container disks, and the store that keeps them.

The store returns read-only disks by image name.  All input, from registries and from users, is
untrusted until ``qcow.inspect`` has checked it.
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
