"""What can go wrong when the demo guest is built, in words for the person who asked for it."""


class DemoError(Exception):
    """The demo guest cannot be built: `message` says why, `hint` what to do."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(f"{message}; {hint}")
        self.message = message
        self.hint = hint
