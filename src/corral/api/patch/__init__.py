"""The ways to say a change: JSON patch, merge patch and strategic merge patch.

Each module is one function from a document and a patch to a new document.  Arguments are left as
they were; the new document may share parts with them.
"""
