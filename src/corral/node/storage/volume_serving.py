"""The volumes of a host, read by nodes of other hosts that clone a claim.

    GET /corral/volumes?namespace=NS&claim=NAME&target_namespace=NS&target=NAME

The API server, or the node's own port, has authenticated the caller, and permitted it the path.
What is decided here is which claim: one whose clone is being made on the caller's node.  Nodes
cannot write what a claim is a clone of, so one whose credentials are stolen reads the sources of
its own clones, which it gets anyway.
"""

import asyncio
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from lightkube.models.core_v1 import PersistentVolumeClaim
from starlette.requests import Request
from starlette.responses import PlainTextResponse, StreamingResponse
from starlette.types import Receive, Scope, Send

from corral.aio import finished
from corral.api.errors import ApiError, Forbidden, NotFound
from corral.api.kinds.auth.certificate_signing_request import NODE_USER_PREFIX
from corral.api.kinds.cdi.population import is_populated, source_claim
from corral.api.kinds.storage.common import SELECTED_NODE
from corral.api.object import Key
from corral.client.client import Client
from corral.failures import describe
from corral.node.storage.claim_volumes import Claims
from corral.node.storage.error import StorageError
from corral.node.storage.storage import Storage
from corral.node.storage.volume import StoredVolume
from corral.node.storage.volume_stream import read
from corral.reconcile.objects import annotations_of


class VolumeServer:
    """An ASGI app that serves the volumes of a host's storages to other nodes."""

    def __init__(self, client: Client, storages: Sequence[Storage]) -> None:
        self._client = client
        self._claims = Claims(client, storages)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send a volume, or why not.  No machine writes it meanwhile."""
        try:
            storage, volume = await self._find(Request(scope))
            exported = storage.exported(volume.handle)
            disk = await finished(
                asyncio.to_thread(exported.__enter__), discard=lambda _: _leave(exported)
            )
        except Forbidden as error:
            await PlainTextResponse(str(error), 403)(scope, receive, send)
        except (ApiError, StorageError, OSError) as error:
            await PlainTextResponse(describe(error), 409)(scope, receive, send)
        else:
            try:
                response = StreamingResponse(read(disk), media_type="application/octet-stream")
                await response(scope, receive, send)
            finally:
                await finished(asyncio.to_thread(_leave, exported))

    async def _find(self, request: Request) -> tuple[Storage, StoredVolume]:
        """Return the requested volume, and the storage it lies in.

        Raises Forbidden unless the caller makes a clone of it, StorageError and ApiError.
        """
        query = request.query_params
        source = Key(query.get("namespace", ""), query.get("claim", ""))
        target = Key(query.get("target_namespace", ""), query.get("target", ""))
        caller = request.scope.get("state", {}).get("user", "")
        if not await self._is_clone_of(target, source, caller):
            raise Forbidden(f"{caller} makes no clone {target} of {source}")
        return await self._claims.locate(*source)

    async def _is_clone_of(self, target: Key, source: Key, caller: str) -> bool:
        """Report whether a claim that is made on the caller's node is to be a clone of another."""
        try:
            claim = await self._client.get(PersistentVolumeClaim, target.name, target.namespace)
        except NotFound:
            return False
        if is_populated(claim) or source_claim(claim) != source:
            return False
        node = caller.removeprefix(NODE_USER_PREFIX)
        # The API server's own user is no node: the first host makes clones, too.
        return node == caller or annotations_of(claim).get(SELECTED_NODE) == node


def _leave(exported: AbstractContextManager[Path]) -> None:
    exported.__exit__(None, None, None)
