"""Live migration: the guest of a machine goes on running in a machine of another node."""
