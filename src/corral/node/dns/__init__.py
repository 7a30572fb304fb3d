"""Cluster DNS: names of Services and endpoints; others are forwarded to the host's servers."""
