"""Metrics of machines: KubeVirt's families, and CPU and memory for metrics.k8s.io."""
