"""Sessions of browsers: tokens that stand for the credentials of a user, for some hours.

A browser has no kubeconfig.  Its user requests a one-use code with credentials of their own, and
the page exchanges it for a token.  Codes and tokens are kept as digests, in memory only: a restart
ends them.  The credentials are evaluated at each use, so that a session ends with them: when they
expire, are revoked, or belong to a ServiceAccount that is deleted.
"""

import hashlib
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from corral.api.request import Request

PREFIX: Final = "corral-session-"
"""Prefix of the tokens, by which a leaked one is recognized."""
CODE_SECONDS: Final = 60.0
SESSION_SECONDS: Final = 12 * 3600.0
MAX_PER_USER: Final = 32
"""Codes, and sessions, of a user; the oldest are dropped for new ones."""


@dataclass(frozen=True, slots=True)
class Grant:
    """A code or a session of a user; ``ends`` is in seconds since 1970.

    ``credentials`` is a request with the credentials it stands for.
    """

    user: str
    credentials: Request
    ends: float


class BrowserSessions:
    """The codes and sessions of a server; ``now`` is seconds since 1970."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._codes: dict[bytes, Grant] = {}
        self._sessions: dict[bytes, Grant] = {}

    def issue_code(self, user: str, request: Request) -> tuple[str, float]:
        """Return a code for the user of a request, and when it ends."""
        grant = Grant(user, _credentials(request), self._now() + CODE_SECONDS)
        return self._add(self._codes, grant, ""), grant.ends

    def redeem(self, code: str) -> tuple[str, Grant] | None:
        """Return a token for a code, and its session; None for a used, expired or unknown code."""
        found = self._codes.pop(_digest(code), None)
        if found is None or found.ends <= self._now():
            return None
        grant = Grant(found.user, found.credentials, self._now() + SESSION_SECONDS)
        return self._add(self._sessions, grant, PREFIX), grant

    def find(self, token: str) -> Grant | None:
        """Return the session of a token; None if it is unknown or has ended."""
        found = self._sessions.get(_digest(token)) if token.startswith(PREFIX) else None
        return found if found is not None and found.ends > self._now() else None

    def end(self, token: str) -> None:
        """End the session of a token, if there is one."""
        self._sessions.pop(_digest(token), None)

    def _add(self, grants: dict[bytes, Grant], grant: Grant, prefix: str) -> str:
        """Return a new secret for a grant; drop ended ones, and the oldest of too many."""
        for digest in [each for each, other in grants.items() if other.ends <= self._now()]:
            del grants[digest]
        own = [each for each, other in grants.items() if other.user == grant.user]
        for digest in own[: max(0, len(own) + 1 - MAX_PER_USER)]:
            del grants[digest]
        secret = f"{prefix}{secrets.token_urlsafe(32)}"
        grants[_digest(secret)] = grant
        return secret


def _credentials(request: Request) -> Request:
    """Return a request with the credentials of another, and nothing else of it."""
    authorization = request.headers.get("authorization", "")
    headers = {"authorization": authorization} if authorization else {}
    return Request(method="GET", path="/", headers=headers, certificate=request.certificate)


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()
