"""Resource limits of machines: from the pod, enforced by cgroups or without them."""
