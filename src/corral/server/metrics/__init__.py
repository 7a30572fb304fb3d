"""The server's own metrics, metrics.k8s.io, and custom and external metrics."""
