"""Kinds that users bring: CustomResourceDefinitions, and the rows of the table that they become.

What is here is pure.  The server follows the definitions in its store, loops those that the API
tells; both make rows of them by ``custom_kinds.kind_of``.
"""
