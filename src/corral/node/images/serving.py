"""The image store of a host, read by the nodes of other hosts.

    GET /corral/images?reference=NAME&file=PATH                  an Offer, in JSON
    GET /corral/images?reference=NAME&file=PATH&digest=sha256:…  its disk, as it is stored

The API server, or the node's own port, has authorized the request.  An image that was pulled with a
Secret is found by nodes only that have the same credentials: they send a hash of them, see
``access``.  Copies of other hosts' imports are not offered: an import that was replaced or removed
would live on in them.
"""

import asyncio

import msgspec
from starlette.requests import Request
from starlette.responses import FileResponse, PlainTextResponse, Response
from starlette.types import Receive, Scope, Send

from corral.node.images.error import ImageError
from corral.node.images.image import Image
from corral.node.images.offer import SECRETS_HEADER, Offer
from corral.node.images.store import ImageStore


class ImageServer:
    """An ASGI app that serves the images of a store."""

    def __init__(self, store: ImageStore) -> None:
        self._store = store

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        response = await self._respond(Request(scope, receive))
        await response(scope, receive, send)

    async def _respond(self, request: Request) -> Response:
        query = request.query_params
        hashes = set(request.headers.get(SECRETS_HEADER, "").split(",")) - {""}
        try:
            found = await asyncio.to_thread(
                self._store.find, query.get("reference", ""), file=query.get("file", "")
            )
        except ImageError as error:
            return PlainTextResponse(error.message, 400)
        offer = await asyncio.to_thread(_offer, found, hashes) if found is not None else None
        # The same response as for an absent image: it must not reveal which images are present.
        if found is None or offer is None or query.get("digest", offer.digest) != offer.digest:
            return PlainTextResponse("no such image", 404)
        if "digest" in query:
            return FileResponse(found.path, media_type="application/octet-stream")
        return Response(msgspec.json.encode(offer), media_type="application/json")


def _offer(image: Image, hashes: set[str]) -> Offer | None:
    """Return the offer of an image; None for copies, and to nodes without its credentials."""
    if image.source == "copy":
        return None
    permitting = sorted(hashes & image.access.hashes())
    if not image.access.everyone and not permitting:
        return None
    try:
        size = image.path.stat().st_size
    except FileNotFoundError:
        return None  # removed meanwhile
    return Offer(
        digest=image.digest,
        size=size,
        format="qcow2" if image.format == "qcow2" else "raw",
        virtual_size=image.virtual_size,
        source=image.source,
        manifest=image.manifest,
        secret="" if image.access.everyone else permitting[0],
    )
