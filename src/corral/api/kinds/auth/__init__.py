"""Who somebody is and what one may do: reviews, RBAC, and requests for certificates."""
