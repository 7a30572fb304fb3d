"""Kubernetes' core group: pods, nodes, Secrets, events, quotas and limit ranges."""
