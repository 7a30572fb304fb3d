"""Server-side apply: managers of fields, merging of applied configurations, conflicts.

Pure functions on documents, with the behaviour of Kubernetes' structured-merge-diff: ``field_sets``
are sets of paths, ``types`` says which parts of a kind are granular and which atomic, ``managers``
updates ``metadata.managedFields``.
"""
