"""Authentication of requests: client certificates and bearer tokens.

Components of this process need neither: their requests carry their user.
"""

import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Final

import structlog

from corral.api.errors import Forbidden, Unauthorized
from corral.api.request import Certificate, Request, User
from corral.api.time import rfc3339
from corral.pki import SigningKey
from corral.server.authn.bootstrap_tokens import BootstrapTokens
from corral.server.authn.browser_sessions import BrowserSessions, Grant
from corral.server.authn.revocations import Revocations
from corral.server.authn.service_accounts import CREDENTIAL, ISSUER, Accounts
from corral.server.authn.websocket_credentials import is_of_another_site
from corral.store import Store

ADMINISTRATORS = "system:masters"
AUTHENTICATED = "system:authenticated"
ANONYMOUS = User(name="system:anonymous", groups=("system:unauthenticated",))
ADMINISTRATOR = User(name="kubernetes-admin", groups=(ADMINISTRATORS, AUTHENTICATED))
REJECTED: Final = "corral.dev/turned-away"
"""Audit annotation with the user and reason of a rejected certificate; clients do not see it."""

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Authenticator:
    """Finds the user of a request.

    ``tokens`` are static tokens, each with its user; ``accounts`` checks tokens of ServiceAccounts,
    ``revocations`` certificates; ``browser_sessions`` has the tokens of the dashboard; ``now`` is
    seconds since 1970.
    """

    tokens: Mapping[str, User] = field(default_factory=dict, repr=False)
    accounts: Accounts | None = None
    bootstrap_tokens: BootstrapTokens | None = None
    revocations: Revocations | None = None
    browser_sessions: BrowserSessions | None = None
    now: Callable[[], float] = time.time
    _by_digest: Mapping[bytes, User] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        digests = {_digest(token): user for token, user in self.tokens.items()}
        object.__setattr__(self, "_by_digest", digests)

    def over(
        self, store: Store, account_key: SigningKey | None, now: Callable[[], float]
    ) -> "Authenticator":
        """Return an authenticator that also uses the ServiceAccounts and revocations of a store.

        ``account_key`` signs tokens; without one they are valid as long as this process runs.
        """
        accounts = Accounts(store, account_key, now=now)
        return replace(
            self,
            accounts=accounts,
            bootstrap_tokens=BootstrapTokens(store, now),
            revocations=Revocations(store),
            browser_sessions=BrowserSessions(now),
            now=now,
        )

    def user(self, request: Request) -> User:
        """Return the sender of a request, before impersonation.  Raises Unauthorized.

        The connection's certificate counts, else the bearer token; invalid credentials are
        rejected.  A request without credentials is anonymous.
        """
        if request.user is not None:
            return request.user
        header = request.headers.get("authorization", "")
        if request.certificate is None and not header:
            return ANONYMOUS
        user = self._by_certificate(request.certificate) if request.certificate else None
        if user is None:
            user = self.by_token(bearer(request))
        if user is None:
            if request.certificate is not None:
                request.annotations[REJECTED] = self._rejection(request.certificate)
            raise Unauthorized("Unauthorized")
        return user

    def ends(self, request: Request) -> float | None:
        """Return when the credentials of a request expire at the latest, in seconds since 1970.

        None for credentials that never expire, 0 for invalid ones.
        """
        shown = request.headers.get("authorization") or request.certificate
        if request.is_in_process or not shown:
            return None
        if request.certificate and self._by_certificate(request.certificate):
            return request.certificate.ends
        token = bearer(request)
        if _digest(token) in self._by_digest:
            return None
        if self.browser_sessions is not None and (session := self.browser_sessions.find(token)):
            ends = self.ends(session.credentials)
            return session.ends if ends is None else min(session.ends, ends)
        if self.bootstrap_tokens is not None and self.bootstrap_tokens.user(token):
            return self.bootstrap_tokens.ends(token)
        return (self.accounts.ends(token) if self.accounts is not None else None) or 0.0

    def require_own_site(self, request: Request) -> None:
        """Check that no page of another site opens a websocket with this user's credentials.

        Browsers let every page open websockets to any server, and show the user's certificate
        there.  A token is known to its page alone, but one of the dashboard is for the dashboard.
        Raises Forbidden.
        """
        if not is_of_another_site(request.headers):
            return
        token = bearer(request)
        is_session = self.browser_sessions is not None and self.browser_sessions.find(token)
        if request.certificate is not None or is_session:
            raise Forbidden(
                f"websockets of pages of {request.headers['origin']} are refused: "
                f"this server is {request.headers.get('host', '')}"
            )

    def _by_certificate(self, certificate: Certificate) -> User | None:
        return None if self._flaw(certificate) else _subject(certificate)

    def _flaw(self, certificate: Certificate) -> str:
        """Return why a certificate is rejected; empty for a valid one."""
        if not certificate.name:
            return "has no common name"
        if self.now() < certificate.begins:
            return f"is not valid before {rfc3339(certificate.begins)}"
        if self.now() >= certificate.ends:
            return f"expired at {rfc3339(certificate.ends)}"
        if self.revocations is not None and self.revocations.covers(certificate):
            return "was revoked"
        return ""

    def _rejection(self, certificate: Certificate) -> str:
        """Return whose certificate is rejected and why; log it."""
        message = f'the certificate of "{certificate.name}" {self._flaw(certificate)}'
        _log_once(message, certificate.fingerprint)
        return message

    def by_token(self, token: str) -> User | None:
        """Return the user of a token; None for an unknown or expired one."""
        # a look-up by digest: its duration reveals nothing about valid tokens
        user = self._by_digest.get(_digest(token))
        if user is not None:
            return user
        if self.browser_sessions is not None and (session := self.browser_sessions.find(token)):
            return self._user_of_session(session)
        if self.bootstrap_tokens is not None and (user := self.bootstrap_tokens.user(token)):
            return user
        return self.accounts.user(token) if self.accounts is not None else None

    def _user_of_session(self, session: Grant) -> User | None:
        """Return the user of a session; None if its credentials are not valid any more."""
        try:
            return self.user(session.credentials)
        except Unauthorized:
            return None

    def review(self, token: str, audiences: Sequence[str]) -> tuple[User, Sequence[str]] | None:
        """Return the user of a token and its matching audiences; the default is this server."""
        requested = audiences or (ISSUER,)
        claimed = self.accounts.audiences(token) if self.accounts is not None else None
        matched = [each for each in requested if each in (claimed or (ISSUER,))]
        if not matched:
            return None
        if claimed is None or self.accounts is None:
            user = self.by_token(token)
        else:
            user = self.accounts.user(token, matched)
        return None if user is None else (user, matched)


def bearer(request: Request) -> str:
    """Return the bearer token of a request; empty without one."""
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()


@lru_cache(maxsize=1024)
def _log_once(message: str, fingerprint: str) -> None:
    """Log the first rejection of a certificate only: some clients retry for ever."""
    log.warning("client certificate rejected", reason=message, fingerprint=fingerprint)


@lru_cache(maxsize=1024)
def _subject(certificate: Certificate) -> User:
    """Return the user of a certificate, as Kubernetes does: name from CN, groups from O."""
    return User(
        name=certificate.name,
        groups=(*dict.fromkeys((*certificate.groups, AUTHENTICATED)),),
        extra={CREDENTIAL: (f"X509SHA256={certificate.fingerprint}",)},
    )
