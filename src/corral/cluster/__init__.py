"""Stand-ins for what Kubernetes brings: scheduler, garbage collector, namespaces, lost nodes."""
