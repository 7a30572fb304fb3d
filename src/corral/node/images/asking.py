"""Asks peers for an image, and chooses among what they offer."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec
import structlog

from corral.api.errors import ApiError
from corral.node.images.error import ImageError
from corral.node.images.offer import Offer, RequestedImage
from corral.node.images.peer import Peer

log = structlog.get_logger()


class Offered(NamedTuple):
    """An offer, and the peer that made it."""

    peer: Peer
    offer: Offer


@dataclass(frozen=True, slots=True)
class Offers:
    """The answers of all peers.

    usable: the first one that the pull policy permits without a registry; pulled: those that it
    permits once the registry confirms their manifest, by its digest; failed: whether a peer did not
    answer, so that more may be there.
    """

    usable: Offered | None = None
    pulled: Mapping[str, Offered] = field(default_factory=dict)
    failed: bool = False


async def ask(peers: Sequence[Peer], image: RequestedImage, policy: str) -> Offers:
    """Ask peers in turn until one has a usable image."""
    pulled: dict[str, Offered] = {}
    failed = False
    for peer in peers:
        try:
            offer = await peer.find(image)
        except (ApiError, ImageError, msgspec.DecodeError) as error:
            report_failure(peer, image, error)
            failed = True
            continue
        if offer is None:
            continue
        if offer.satisfies(policy):
            return Offers(Offered(peer, offer), pulled, failed)
        pulled.setdefault(offer.manifest, Offered(peer, offer))
    return Offers(None, pulled, failed)


def report_failure(peer: Peer, image: RequestedImage, error: Exception) -> None:
    """Log that a peer did not answer, or not with what it offered."""
    log.warning("image not copied", host=peer.name, image=image.reference, error=str(error))
