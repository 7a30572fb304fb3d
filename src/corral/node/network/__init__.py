"""Pod networks: namespaces, links, addresses, traffic into and out of the cluster."""
