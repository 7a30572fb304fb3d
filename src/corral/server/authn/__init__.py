"""Authentication: client certificates, tokens, ServiceAccounts, TokenReview."""
