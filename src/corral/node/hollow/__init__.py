"""Hollow machines: a hypervisor that runs nothing, so the same agent has simulated guests."""
