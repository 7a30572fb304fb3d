"""Who may talk to whom: NetworkPolicies, kept by the packet filter of the machine namespace."""
