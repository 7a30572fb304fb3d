"""The agent of a node: syncs pods to machines, as a kubelet does."""
