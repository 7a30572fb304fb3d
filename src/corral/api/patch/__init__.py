"""Patches: JSON patch, merge patch and strategic merge patch.

Each module has a function that returns a patched document.  Arguments are not changed; the result
may share parts with them.
"""
