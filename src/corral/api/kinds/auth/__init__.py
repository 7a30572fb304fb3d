"""Authentication and authorization: reviews, RBAC, CertificateSigningRequests."""
