"""Services with their endpoints, Ingress and NetworkPolicy."""
