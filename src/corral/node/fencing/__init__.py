"""Self-fencing: a node whose Lease expires ends the machines that others may replace then."""
