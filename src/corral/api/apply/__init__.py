"""Server-side apply: who set which field, and what follows when somebody applies a configuration.

Pure functions on documents.  The behaviour is that of Kubernetes' structured-merge-diff:
``field_sets`` are sets of paths, ``types`` knows which parts of a kind are merged and which are
replaced as a whole, ``managers`` keeps the account (``metadata.managedFields``).
"""
