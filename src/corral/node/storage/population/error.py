"""Why a claim is not filled.

- NotFilled            tried again later, and counted
    - TooLarge         what has arrived is a disk, which no second try makes any smaller
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


class TooLarge(NotFilled):
    """The claim is smaller than the disk that it shall hold."""

    def __init__(self, size: int, capacity: int) -> None:
        super().__init__(
            f"Virtual image size {size} is larger than the reported available storage {capacity}. "
            "A larger PVC is required."
        )


class Waits(NotFilled):
    """Filling cannot begin yet."""
