"""Why a claim is not filled.

- NotFilled            tried again later, and counted
    - Waits            something else has to happen first: tried again when it does, not counted
"""

ERROR = "Error"
"""The reason that CDI tells of whatever failed."""
NO_ROOM = "NoSpaceLeft"


class NotFilled(Exception):
    """Filling failed; ``str()`` is the message, what to do included.

    reason: one CamelCase word.
    """

    def __init__(self, message: str, *, reason: str = ERROR) -> None:
        self.reason = reason
        super().__init__(message)


class Waits(NotFilled):
    """Filling cannot begin yet."""
