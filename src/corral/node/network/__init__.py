"""The network of the machines: namespaces, links, addresses, and the ways in and out."""
