"""The image store of a host, read by the nodes of other hosts.

    GET /corral/images?reference=NAME&file=PATH                  an Offer, in JSON
    GET /corral/images?reference=NAME&file=PATH&digest=sha256:…  its disk, as it is stored

The API server, or the node's own port, has authorized the request.  An image that was pulled with a
Secret is found by nodes only that prove the same credentials, see ``secret_proofs``.  Copies of
other hosts' imports are not offered: an import that was replaced or removed would live on in them.
"""

import asyncio
import time
from collections.abc import Callable, Iterable
from functools import partial

import msgspec
from starlette.requests import Request
from starlette.responses import FileResponse, PlainTextResponse, Response
from starlette.types import Receive, Scope, Send

from corral.node.images.error import ImageError
from corral.node.images.image import Image
from corral.node.images.offer import SECRETS_HEADER, Offer
from corral.node.images.secret_proofs import SecretProofs
from corral.node.images.store import ImageStore


class ImageServer:
    """An ASGI app that serves the images of a store.

    ``state`` of a request's scope names the ``user`` who is authenticated; ``now`` returns seconds
    since 1970.
    """

    def __init__(self, store: ImageStore, now: Callable[[], float] = time.time) -> None:
        self._store = store
        self._now = now

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        response = await self._respond(Request(scope, receive))
        await response(scope, receive, send)

    async def _respond(self, request: Request) -> Response:
        query = request.query_params
        reference, header = query.get("reference", ""), request.headers.get(SECRETS_HEADER, "")
        user = request.scope.get("state", {}).get("user", "")
        proven = partial(SecretProofs(user, reference, self._now()).proven, header)
        try:
            found = await asyncio.to_thread(self._store.find, reference, file=query.get("file", ""))
        except ImageError as error:
            return PlainTextResponse(error.message, 400)
        offer = await asyncio.to_thread(_offer, found, proven) if found is not None else None
        # The same response as for an absent image: it must not reveal which images are present.
        if found is None or offer is None or query.get("digest", offer.digest) != offer.digest:
            return PlainTextResponse("no such image", 404)
        if "digest" in query:
            return FileResponse(found.path, media_type="application/octet-stream")
        return Response(msgspec.json.encode(offer), media_type="application/json")


def _offer(image: Image, proven: Callable[[Iterable[str]], str]) -> Offer | None:
    """Return the offer of an image; None for copies, and to nodes without its credentials.

    ``proven`` returns the proof that a node has sent for one of some hashes; empty without one.
    """
    if image.source == "copy":
        return None
    proof = "" if image.access.everyone else proven(image.access.hashes())
    if not image.access.everyone and not proof:
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
        secret=proof,
    )
