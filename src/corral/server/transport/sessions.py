"""Streams end with the credentials of their user.

A request is authenticated once, but its stream may last for hours: a watch, a console, a followed
log.  It ends when its certificate or token expires, when the certificate is revoked, when the
token's ServiceAccount is deleted, and when the user signs out.  Static tokens never expire.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import structlog

from corral.api.errors import Unauthorized
from corral.api.request import Request
from corral.api.revocation import MAP
from corral.server.authn.authenticator import Authenticator
from corral.store import Store, Watch

_LONG_SECONDS: Final = 3600.0

log = structlog.get_logger()


class SessionEnded(Exception):
    """The credentials of a stream's user are not valid any more."""


class Sessions:
    """The open streams whose credentials may expire or be revoked.

    The store is watched as long as there are any.
    """

    def __init__(self, store: Store, authenticator: Authenticator) -> None:
        self._store = store
        self._authenticator = authenticator
        self._requests: dict[asyncio.Timeout, Request] = {}
        self._watch_tasks: list[asyncio.Task[None]] = []

    @asynccontextmanager
    async def while_authenticated(self, request: Request) -> AsyncIterator[None]:
        """Run a stream as long as its credentials are valid.  Raises SessionEnded."""
        ends = self._authenticator.ends(request)
        if ends is None:
            yield
            return
        scope = asyncio.timeout(max(0.0, ends - self._authenticator.now()))
        try:
            async with scope:
                self._add(scope, request)
                try:
                    yield
                finally:
                    self._remove(scope)
        except TimeoutError:
            if not scope.expired():
                raise
            log.info(
                "stream ended", path=request.path, reason="its credentials are not valid any more"
            )
            raise SessionEnded from None

    def _add(self, scope: asyncio.Timeout, request: Request) -> None:
        if not self._requests:
            self._watch_tasks = [
                asyncio.create_task(self._follow(changes), name="sessions")
                for changes in (
                    self._store.watch("configmaps", self._store.revision, *MAP),
                    self._store.watch("serviceaccounts", self._store.revision),
                )
            ]
        self._requests[scope] = request
        self._check(scope, request)  # revoked since it was authenticated?

    def _remove(self, scope: asyncio.Timeout) -> None:
        del self._requests[scope]
        if not self._requests:
            for task in self._watch_tasks:
                task.cancel()
            self._watch_tasks = []

    async def _follow(self, changes: Watch) -> None:
        try:
            while not changes.finished:
                if await changes.next_events(_LONG_SECONDS):
                    self.check_all()
            if changes.lost_after is not None:  # the watch fell behind: changes are unknown
                self.check_all()
        finally:
            changes.close()

    def check_all(self) -> None:
        """End the streams whose credentials are not valid any more."""
        for scope, request in list(self._requests.items()):
            self._check(scope, request)

    def _check(self, scope: asyncio.Timeout, request: Request) -> None:
        try:
            self._authenticator.user(request)
        except Unauthorized:
            scope.reschedule(asyncio.get_running_loop().time())
