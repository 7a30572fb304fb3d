"""Streams end with the right to be there: who opened one may be nobody any more.

A request is looked at once, but what it opens may last for hours: a watch, a console, a log that is
followed.  It is ended when its certificate or token is over, when the certificate is revoked, and
when the token's ServiceAccount is deleted.  Those of static tokens last: these never end.
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
    """Whoever opened a stream is not known any more."""


class Sessions:
    """The streams that are open for users who may cease to be known.

    The store is followed as long as there are any.
    """

    def __init__(self, store: Store, authenticator: Authenticator) -> None:
        self._store = store
        self._authenticator = authenticator
        self._open: dict[asyncio.Timeout, Request] = {}
        self._following: list[asyncio.Task[None]] = []

    @asynccontextmanager
    async def hold(self, request: Request) -> AsyncIterator[None]:
        """Let a stream last while its sender is known.  Raises SessionEnded."""
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
            log.info("stream ended", path=request.path, reason="its user is not known any more")
            raise SessionEnded from None

    def _add(self, scope: asyncio.Timeout, request: Request) -> None:
        if not self._open:
            self._following = [
                asyncio.create_task(self._follow(changes), name="sessions")
                for changes in (
                    self._store.watch("configmaps", self._store.revision, *MAP),
                    self._store.watch("serviceaccounts", self._store.revision),
                )
            ]
        self._open[scope] = request
        self._check(scope, request)  # it may have been revoked since it was let pass

    def _remove(self, scope: asyncio.Timeout) -> None:
        del self._open[scope]
        if not self._open:
            for task in self._following:
                task.cancel()
            self._following = []

    async def _follow(self, changes: Watch) -> None:
        try:
            while not changes.finished:
                if await changes.next_events(_LONG_SECONDS):
                    self._check_all()
            if changes.lost_after is not None:  # so much has changed that nobody knows what
                self._check_all()
        finally:
            changes.close()

    def _check_all(self) -> None:
        for scope, request in list(self._open.items()):
            self._check(scope, request)

    def _check(self, scope: asyncio.Timeout, request: Request) -> None:
        try:
            self._authenticator.user(request)
        except Unauthorized:
            scope.reschedule(asyncio.get_running_loop().time())
