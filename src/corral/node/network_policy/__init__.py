"""NetworkPolicies, enforced by nftables in the machine namespace."""
