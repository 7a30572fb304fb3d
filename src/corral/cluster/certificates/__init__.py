"""Controllers of CertificateSigningRequests: signer and cleaner."""

from corral.cluster.certificates.csr_cleaner import controller as cleaner
from corral.cluster.certificates.csr_signer import controller as signer

__all__ = ["cleaner", "signer"]
