"""Admission: built-in plugins; webhooks and policies are in ``dynamic``."""
