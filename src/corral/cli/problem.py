"""How a command says that something went wrong."""

from dataclasses import dataclass


@dataclass(eq=False)
class Problem(Exception):
    """What is wrong, and what to do about it; shown without a traceback."""

    message: str
    hint: str = ""
    exit_code: int = 1

    def __str__(self) -> str:
        return self.message
