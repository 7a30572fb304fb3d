"""A hypervisor that runs nothing: the same agent with simulated guests."""
