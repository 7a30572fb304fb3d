"""OpenAPI documents: ``/openapi/v2``, ``/openapi/v3`` and the paths below that."""

import asyncio
from collections.abc import Callable

from corral.api.etag import Tagged
from corral.api.kinds.table import KindTable
from corral.api.openapi import OpenAPI
from corral.api.request import Request, Response
from corral.server.request import accept, query
from corral.server.response.etag import cached
from corral.server.subresources.catalog import SUBRESOURCES

_JSON = "application/json"
_GNOSTIC = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
_REQUESTED_GNOSTIC = (_GNOSTIC, "application/com.github.proto-openapi.spec.v2@v1.0+protobuf")
"""Clients request it with a letter that media types must not have; responses name it without."""
_FOR_A_YEAR = ("cache-control", "public, immutable, max-age=31536000")


class Schemas:
    """The documents of a table of kinds, built on first use.

    That takes as long as hundreds of requests, so a thread builds them while others are served.
    """

    def __init__(self, kinds: KindTable) -> None:
        self._openapi = OpenAPI(kinds, SUBRESOURCES)
        self._lock = asyncio.Lock()

    async def answer(self, path: str, request: Request) -> Response | None:
        """Return the response for a path below ``/openapi``; None if there is none."""
        openapi = self._openapi
        if path == "/v2":
            await self._ensure(lambda: openapi.has_v2, openapi.make_v2)
            return self._v2(request)
        if path != "/v3" and not path.startswith("/v3/"):
            return None
        await self._ensure(lambda: openapi.has_v3, openapi.make_v3)
        if path == "/v3":
            return cached(openapi.index(), _JSON, request)
        document = openapi.document(path.removeprefix("/v3/"))
        return None if document is None else _one(document, path, request)

    async def _ensure(self, is_made: Callable[[], bool], make: Callable[[], None]) -> None:
        while not is_made():
            async with self._lock:
                if not is_made():
                    await asyncio.to_thread(make)

    def _v2(self, request: Request) -> Response:
        accepted = accept.medias(request.headers.get("accept", ""))
        protobuf = bool(accepted) and accepted[0].type in _REQUESTED_GNOSTIC
        document = self._openapi.whole(protobuf=protobuf)
        return cached(document, _GNOSTIC if protobuf else _JSON, request)


def _one(document: Tagged, path: str, request: Request) -> Response:
    """Respond with a document: cacheable if the hash matches; redirect a wrong hash."""
    requested_hash = query.parse(request.query).get("hash", "")
    if requested_hash and requested_hash != document.tag:
        return Response(status=301, headers=[("location", f"/openapi{path}?hash={document.tag}")])
    response = cached(document, _JSON, request)
    if requested_hash:
        response.headers.append(_FOR_A_YEAR)
    return response
