"""The real server, as for the machinery of every loop."""

from tests.unit.reconcile.conftest import server, store

__all__ = ["server", "store"]
