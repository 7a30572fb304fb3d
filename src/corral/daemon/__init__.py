"""Composition root: opens the rooms and joins them; the only room that knows every other."""
