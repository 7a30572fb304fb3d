"""CustomResourceDefinitions: their validation, and the kinds that they define.

No I/O here.  The server watches the definitions in its store, controllers those in the API; both
make a row of the table of kinds of each by ``custom_kinds.kind_of``.
"""
