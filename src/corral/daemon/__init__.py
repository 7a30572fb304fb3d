"""Composition root: opens the rooms and joins them; the only room that knows every other."""

from corral.daemon.run import CannotStart, run

__all__ = ["CannotStart", "run"]
