"""What goes wrong with a volume."""


class StorageError(Exception):
    """A volume cannot be had, or not be changed; ``str()`` is message and hint.

    message: what is wrong, naming the volume.
    hint: what to do about it; may be empty.
    """

    def __init__(self, message: str, hint: str = "") -> None:
        self.message = message
        self.hint = hint
        super().__init__(f"{message} ({hint})" if hint else message)


class NoSuchVolume(StorageError):
    """There is no volume of that handle."""


class NoRoom(StorageError):
    """What is promised already leaves no room for what is asked: it may pass."""


class InUse(StorageError):
    """A machine writes the volume at present: it will pass."""
