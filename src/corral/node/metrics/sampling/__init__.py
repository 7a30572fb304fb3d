"""What guests and nodes take: looked at in passing, told as metrics.k8s.io and kubelets tell it."""
