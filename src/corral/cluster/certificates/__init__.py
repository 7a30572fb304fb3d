"""What becomes of requests for certificates: some are signed here, and all go when they are old."""

from corral.cluster.certificates.cleaner import controller as cleaner
from corral.cluster.certificates.signer import controller as signer

__all__ = ["cleaner", "signer"]
