"""Bytes that the server holds for its clients: bounded for each user, and for all together.

Whoever has something large on its way for the first time is never refused, so that nobody can use
up what is there for all.  What is small is not counted: connections have buffers as large.
"""

from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Final

from corral.api.errors import Details, TooManyRequests
from corral.api.request import Request

SMALL_BYTES: Final = 64 << 10
RETRY_SECONDS: Final = 1

_UNCOUNTED: Final = nullcontext()


class Budget:
    """Bytes of one sort: a user holds about ``share`` of them at most, and all users ``total``.

    What has no more than ``small`` bytes is not counted.
    """

    def __init__(self, share: int, total: int, *, small: int = SMALL_BYTES) -> None:
        self._share = share
        self._total = total
        self._small = small
        self._users: dict[str, int] = {}
        self.held = 0

    def require_room(self, user: str, size: int = 1) -> None:
        """Raises TooManyRequests where a user holds much already."""
        own = self._users.get(user)
        if own and (own + size > self._share or self.held + size > self._total):
            details = Details(retry_after_seconds=RETRY_SECONDS)
            raise TooManyRequests("Too many requests, please try again later.", details=details)

    def hold(self, user: str, size: int) -> AbstractContextManager[None]:
        """Count bytes while the block lasts."""
        return _UNCOUNTED if size <= self._small else self._holding(user, size)

    @contextmanager
    def _holding(self, user: str, size: int) -> Generator[None]:
        self._users[user] = self._users.get(user, 0) + size
        self.held += size
        try:
            yield
        finally:
            self.held -= size
            self._users[user] -= size
            if not self._users[user]:
                del self._users[user]


def size_of_body(request: Request, largest: int) -> int:
    """How many bytes a request's body has, or may have where that is not told."""
    length = request.headers.get("content-length", "")
    if length.isdecimal():
        return min(int(length[:20]), largest)
    return largest if "transfer-encoding" in request.headers else 0
