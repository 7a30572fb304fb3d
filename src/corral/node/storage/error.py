"""Errors of volumes."""


class StorageError(Exception):
    """A volume cannot be used or changed; ``str()`` is message and hint.

    message: what is wrong, naming the volume.
    hint: what to do about it; may be empty.
    """

    def __init__(self, message: str, hint: str = "") -> None:
        self.message = message
        self.hint = hint
        super().__init__(f"{message} ({hint})" if hint else message)


class NoSuchVolume(StorageError):
    """No volume has that handle."""


class InsufficientSpace(StorageError):
    """The unallocated space is less than requested; may succeed later."""


class InUse(StorageError):
    """A machine is writing the volume; succeeds later."""
