"""Why the loop could not do what a VirtualMachine asks for."""

from dataclasses import dataclass


@dataclass(eq=False)
class Refused(Exception):
    """The server refused a step; the refusal is the cause.  Told in the condition Failure.

    ``reason`` is one CamelCase word.
    """

    reason: str
    message: str

    def __str__(self) -> str:
        return self.message
