"""Memory budgets of clients: bounded per user, and in total.

A user without a reservation is never refused, so that no other user can exhaust the total for them.
Small sizes are not counted: connections have buffers as large.
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
    """Bytes of one sort: about ``max_per_user`` at most per user, and ``max_total`` for all users.

    Sizes up to ``small`` are not counted.
    """

    def __init__(self, max_per_user: int, max_total: int, *, small: int = SMALL_BYTES) -> None:
        self._max_per_user = max_per_user
        self._max_total = max_total
        self._small = small
        self._users: dict[str, int] = {}
        self.used = 0

    def check_room(self, user: str, size: int = 1) -> None:
        """Check that a user may reserve more.  Raises TooManyRequests."""
        used_by_user = self._users.get(user)
        if used_by_user and (
            used_by_user + size > self._max_per_user or self.used + size > self._max_total
        ):
            details = Details(retry_after_seconds=RETRY_SECONDS)
            raise TooManyRequests("Too many requests, please try again later.", details=details)

    def reserve(self, user: str, size: int) -> AbstractContextManager[None]:
        """Return a context that reserves bytes."""
        return _UNCOUNTED if size <= self._small else self._reserved(user, size)

    @contextmanager
    def _reserved(self, user: str, size: int) -> Generator[None]:
        self._users[user] = self._users.get(user, 0) + size
        self.used += size
        try:
            yield
        finally:
            self.used -= size
            self._users[user] -= size
            if not self._users[user]:
                del self._users[user]


def size_of_body(request: Request, largest: int) -> int:
    """Return the size of a request's body, or the largest if it has no Content-Length."""
    length = request.headers.get("content-length", "")
    if length.isdecimal():
        return min(int(length[:20]), largest)
    return largest if "transfer-encoding" in request.headers else 0
