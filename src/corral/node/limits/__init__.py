"""The limits of machines: what the pod says, and the ways in which this host lets them be kept."""
