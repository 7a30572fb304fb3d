"""Admission: built-in plugins; webhooks and ValidatingAdmissionPolicies are in ``dynamic``."""
