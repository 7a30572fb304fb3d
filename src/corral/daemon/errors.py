"""What keeps the manager from starting."""

from dataclasses import dataclass


@dataclass(eq=False)
class CannotStart(Exception):
    """Why the manager cannot start, and what to do."""

    message: str
    hint: str = ""

    def __str__(self) -> str:
        return self.message
