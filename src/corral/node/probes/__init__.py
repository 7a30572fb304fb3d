"""Readiness and liveness probes of machines."""
