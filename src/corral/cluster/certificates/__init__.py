"""Controllers of CertificateSigningRequests: approver, signer and cleaner."""

from corral.cluster.certificates.csr_approver import controller as approver
from corral.cluster.certificates.csr_cleaner import controller as cleaner
from corral.cluster.certificates.csr_signer import controller as signer

__all__ = ["approver", "cleaner", "signer"]
