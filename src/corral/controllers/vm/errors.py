"""Errors of the VirtualMachine controller."""

from dataclasses import dataclass


@dataclass(eq=False)
class Refused(Exception):
    """The API server refused a step. Becomes the condition Failure; ``reason`` is CamelCase.

    The ApiError is the ``__cause__``.
    """

    reason: str
    message: str

    def __str__(self) -> str:
        return self.message
