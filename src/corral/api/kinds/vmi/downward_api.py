"""Field paths of downwardAPI volumes: the pod metadata that they may name (core/v1)."""

import re

KEYED = frozenset({"labels", "annotations"})
"""Fields that are maps: a path may name one of their values by its key."""
PLAIN = frozenset({"name", "namespace", "uid"})

_PATH = re.compile(r"metadata\.([a-z]+)(?:\['([^']+)'\])?")


def parse_field_path(path: str) -> tuple[str, str]:
    """Return the metadata field that a path names, and the key in it, if any.

    Paths are like ``metadata.name``, ``metadata.labels`` or ``metadata.labels['app']``; raises
    ValueError for others.
    """
    match = _PATH.fullmatch(path)
    field, key = (match[1], match[2] or "") if match else ("", "")
    if field not in KEYED and (field not in PLAIN or key):
        raise ValueError(path)
    return field, key
