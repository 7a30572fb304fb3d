"""VirtualMachineInstance: its spec and status, its defaults, and what makes it valid."""
