"""Which facts of a pod a downwardAPI volume may hold, and how they are named (core/v1)."""

import re

KEYED = frozenset({"labels", "annotations"})
"""Facts that are tables: named with a key they are one of its values."""
PLAIN = frozenset({"name", "namespace", "uid"})

_PATH = re.compile(r"metadata\.([a-z]+)(?:\['([^']+)'\])?")


def parsed(path: str) -> tuple[str, str]:
    """The field of a pod's metadata that a path names, and the key in it; ValueError for others.

    ``metadata.name``, ``metadata.labels``, ``metadata.labels['app']``.
    """
    found = _PATH.fullmatch(path)
    field, key = (found[1], found[2] or "") if found else ("", "")
    if field not in KEYED and (field not in PLAIN or key):
        raise ValueError(path)
    return field, key
