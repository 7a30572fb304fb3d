"""Errors that keep the manager from starting."""

from dataclasses import dataclass


@dataclass(eq=False)
class CannotStart(Exception):
    """The manager cannot start: the cause, and what to do."""

    message: str
    hint: str = ""

    def __str__(self) -> str:
        return self.message
