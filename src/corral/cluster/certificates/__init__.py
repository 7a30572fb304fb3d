"""What becomes of requests for certificates: some are signed here, and all go when they are old."""

from corral.cluster.certificates.csr_cleaner import controller as cleaner
from corral.cluster.certificates.csr_signer import controller as signer

__all__ = ["cleaner", "signer"]
