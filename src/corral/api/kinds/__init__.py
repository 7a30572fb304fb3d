"""Kinds: a module for each, and the table of those that are served.

The tables are imported when they are first used: a command needs neither, and a node's agent needs
a few kinds (``node_kinds``), without what validates the others (``served``).
"""

from collections.abc import Mapping
from functools import cache

import msgspec

from corral.api.kind import Kind
from corral.api.kinds.table import KindTable

__all__ = ["KINDS", "KindTable", "kind_of"]

KINDS: KindTable


def __getattr__(name: str) -> KindTable:
    if name != "KINDS":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from corral.api.kinds import served  # noqa: PLC0415

    globals()[name] = served.KINDS
    return served.KINDS


def kind_of(view: type[msgspec.Struct]) -> Kind:
    """Return the kind of a view.  Raises KeyError for a Struct that is not one."""
    return _of_nodes().get(view) or __getattr__("KINDS").of_view(view)


@cache
def _of_nodes() -> Mapping[type[msgspec.Struct], Kind]:
    from corral.api.kinds.node_kinds import NODE_KINDS  # noqa: PLC0415

    return {kind.view: kind for kind in NODE_KINDS}
