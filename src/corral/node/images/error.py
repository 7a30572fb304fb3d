"""What goes wrong with an image, in the words that a kubelet uses."""

import errno
from collections.abc import Callable

ERR_IMAGE_PULL = "ErrImagePull"
ERR_IMAGE_NEVER_PULL = "ErrImageNeverPull"
INVALID_IMAGE_NAME = "InvalidImageName"
INVALID_DISK = "InvalidDisk"
NO_SUCH_IMAGE = "ImageNotFound"

_LONGEST_MESSAGE = 1000


class ImageError(Exception):
    """An image cannot be had or used; ``str()`` is the message.

    reason: one CamelCase word.  ``ErrImagePull``, ``ErrImageNeverPull`` and ``InvalidImageName``
    are a kubelet's; ``InvalidDisk`` and ``ImageNotFound`` are met by commands only, as a disk that
    came out of a registry and is no disk is an ``ErrImagePull``.
    message: what is wrong, naming the image or the file.
    hint: what to do about it; may be empty.
    """

    def __init__(self, reason: str, message: str, hint: str = "") -> None:
        self.reason = reason
        self.message = _showable(message)
        self.hint = hint
        super().__init__(self.message)


def _showable(text: str) -> str:
    """Messages quote registries and archives, and end in terminals and in objects' status."""
    shown = "".join(each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in text)
    return shown if len(shown) <= _LONGEST_MESSAGE else shown[:_LONGEST_MESSAGE] + "…"


def invalid_disk(message: str, hint: str = "") -> ImageError:
    """The file is not a disk that a machine may be given."""
    return ImageError(INVALID_DISK, message, hint)


def pull_failed(message: str, hint: str = "") -> ImageError:
    """The registry's image did not arrive."""
    return ImageError(ERR_IMAGE_PULL, message, hint)


def of_storage(what: str, error: OSError, make: Callable[[str, str], ImageError]) -> ImageError:
    """What the file system refuses, as an error that ``make`` makes."""
    hint = (
        "free some space: corral image ls, corral image rm" if error.errno == errno.ENOSPC else ""
    )
    return make(f"{what}: {error.strerror or error}", hint)
