"""Memory of a machine: saved to a claim's volume, or in a checkpoint, from which others start.

``save`` and ``restore`` are the steps, after each of which the manager may be killed.  The files
in the volume are ``storage.saved_memory``; ``storage.saved_memory_claims`` finds volumes by their
claims, and annotates the claims.  ``checkpoint`` and ``fork`` are the same for checkpoints, whose
files are ``storage.checkpoint_files``.
"""
