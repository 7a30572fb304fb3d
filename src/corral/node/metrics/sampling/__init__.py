"""Resource usage of guests and nodes: the sampler, metrics.k8s.io, and the kubelet's endpoints."""
