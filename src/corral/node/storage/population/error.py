"""Errors of populating a claim.

- PopulationError      retried with backoff, and counted as a restart
    - ImageTooLarge    the content is a disk larger than the claim; its file is kept
    - NotReady         a precondition is missing: retried when that changes, not counted
"""

ERROR = "Error"
"""CDI's generic reason."""
NO_SPACE = "NoSpaceLeft"


class PopulationError(Exception):
    """Population failed; ``str()`` is the message, what to do included.

    reason: one CamelCase word.
    """

    def __init__(self, message: str, *, reason: str = ERROR) -> None:
        self.reason = reason
        super().__init__(message)


class ImageTooLarge(PopulationError):
    """The claim is smaller than the disk's virtual size."""

    def __init__(self, size: int, capacity: int) -> None:
        super().__init__(
            f"Virtual image size {size} is larger than the reported available storage {capacity}. "
            "A larger PVC is required."
        )


class NotReady(PopulationError):
    """Population cannot begin yet."""
