"""Why an image cannot be had, as a kubelet tells it, and what to do about it."""

from collections.abc import Sequence

from corral.node.images.error import ERR_IMAGE_NEVER_PULL, ImageError, pull_failed
from corral.node.images.examples import advice, importing, located
from corral.node.images.reference import Reference


def never_pulled(reference: str, name: Reference, option: Sequence[str]) -> ImageError:
    """An image that may not be pulled is not there, or not for whoever asks.

    A kubelet says the same of both: that it is there is nobody's business.
    """
    message = f"Container image {reference!r} is not present with pull policy of Never"
    return ImageError(
        ERR_IMAGE_NEVER_PULL, message, located(advice(name) or importing(reference), option)
    )


def as_pull(name: Reference, error: ImageError, option: Sequence[str]) -> ImageError:
    """Whatever is wrong with what came from a registry, a kubelet calls it one thing."""
    prefix = f"failed to pull image {str(name)!r}: "
    message = error.message if error.message.startswith(prefix) else prefix + error.message
    hint = "; ".join(filter(None, (error.hint, advice(name))))
    return pull_failed(message, located(hint, option))
