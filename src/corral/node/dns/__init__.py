"""The cluster's DNS: names of Services and their members, and the host's servers for all others."""
