"""Answers what is asked of schemas: ``/openapi/v2``, ``/openapi/v3`` and what is below that."""

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
_ASKED_GNOSTIC = (_GNOSTIC, "application/com.github.proto-openapi.spec.v2@v1.0+protobuf")
"""What clients ask for has a letter that no media type may have: the answer names it otherwise."""
_FOR_A_YEAR = ("cache-control", "public, immutable, max-age=31536000")


class Schemas:
    """The documents of a table of kinds, made when they are first asked for.

    That takes as long as hundreds of requests: it is done in a thread, meanwhile others are served.
    """

    def __init__(self, kinds: KindTable) -> None:
        self._openapi = OpenAPI(kinds, SUBRESOURCES)
        self._making = asyncio.Lock()

    async def answer(self, path: str, request: Request) -> Response | None:
        """What is at a path below ``/openapi``; None where nothing is."""
        openapi = self._openapi
        if path == "/v2":
            await self._made(lambda: openapi.has_v2, openapi.make_v2)
            return self._whole(request)
        if path != "/v3" and not path.startswith("/v3/"):
            return None
        await self._made(lambda: openapi.has_v3, openapi.make_v3)
        if path == "/v3":
            return cached(openapi.index(), _JSON, request)
        made = openapi.document(path.removeprefix("/v3/"))
        return None if made is None else _one(made, path, request)

    async def _made(self, is_made: Callable[[], bool], make: Callable[[], None]) -> None:
        while not is_made():
            async with self._making:
                if not is_made():
                    await asyncio.to_thread(make)

    def _whole(self, request: Request) -> Response:
        asked = accept.medias(request.headers.get("accept", ""))
        protobuf = bool(asked) and asked[0].type in _ASKED_GNOSTIC
        made = self._openapi.whole(protobuf=protobuf)
        return cached(made, _GNOSTIC if protobuf else _JSON, request)


def _one(made: Tagged, path: str, request: Request) -> Response:
    """An address with the right hash is good for ever, one with a wrong hash moves."""
    asked = query.parse(request.query).get("hash", "")
    if asked and asked != made.tag:
        return Response(status=301, headers=[("location", f"/openapi{path}?hash={made.tag}")])
    response = cached(made, _JSON, request)
    if asked:
        response.headers.append(_FOR_A_YEAR)
    return response
