"""Errors of images, with a kubelet's reasons."""

import errno
from collections.abc import Callable

ERR_IMAGE_PULL = "ErrImagePull"
ERR_IMAGE_NEVER_PULL = "ErrImageNeverPull"
INVALID_IMAGE_NAME = "InvalidImageName"
INVALID_DISK = "InvalidDisk"
NO_SUCH_IMAGE = "ImageNotFound"

_MAX_MESSAGE = 1000


class ImageError(Exception):
    """An image cannot be pulled, found or used; ``str()`` is the message.

    reason: one CamelCase word.  ``ErrImagePull``, ``ErrImageNeverPull`` and ``InvalidImageName``
    are a kubelet's; ``InvalidDisk`` and ``ImageNotFound`` occur in commands only, since an invalid
    disk of a registry is an ``ErrImagePull``.
    message: what is wrong, naming the image or the file.
    hint: what to do about it; may be empty.
    """

    def __init__(self, reason: str, message: str, hint: str = "") -> None:
        self.reason = reason
        self.message = _sanitize(message)
        self.hint = hint
        super().__init__(self.message)


def _sanitize(text: str) -> str:
    """Replace control characters and cut: messages quote untrusted input and reach terminals."""
    clean = "".join(each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in text)
    return clean if len(clean) <= _MAX_MESSAGE else clean[:_MAX_MESSAGE] + "…"


def invalid_disk(message: str, hint: str = "") -> ImageError:
    """Return the error of a file that is no usable disk."""
    return ImageError(INVALID_DISK, message, hint)


def pull_failed(message: str, hint: str = "") -> ImageError:
    """Return the error of a failed pull."""
    return ImageError(ERR_IMAGE_PULL, message, hint)


def from_os_error(
    prefix: str, error: OSError, make: Callable[[str, str], ImageError]
) -> ImageError:
    """Return an error of the file system as an ImageError; ``make`` gets message and hint."""
    hint = (
        "free some space: corral image ls, corral image rm" if error.errno == errno.ENOSPC else ""
    )
    return make(f"{prefix}: {error.strerror or error}", hint)
