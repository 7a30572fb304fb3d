"""Saved memory of a machine: saved to a claim's volume, and resumed by another machine.

``save`` and ``restore`` are the steps, after each of which the manager may be killed.  The files
in the volume are ``storage.saved_memory``; ``storage.saved_memory_claims`` finds volumes by their
claims, and annotates the claims.
"""
