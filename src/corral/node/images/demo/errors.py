"""Errors of building the demo guest, for the user of the command."""


class DemoError(Exception):
    """The demo guest cannot be built. message: the cause; hint: what to do."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(f"{message}; {hint}")
        self.message = message
        self.hint = hint
