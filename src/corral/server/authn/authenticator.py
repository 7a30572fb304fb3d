"""Who asks: certificates, bearer tokens, and components of this process that are known already."""

import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Final

import structlog

from corral.api.errors import Unauthorized
from corral.api.request import Certificate, Request, User
from corral.api.time import rfc3339
from corral.pki import SigningKey
from corral.server.authn.bootstrap_tokens import BootstrapTokens
from corral.server.authn.revocations import Revocations
from corral.server.authn.service_accounts import CREDENTIAL, ISSUER, Accounts
from corral.store import Store

ADMINISTRATORS = "system:masters"
AUTHENTICATED = "system:authenticated"
ANONYMOUS = User(name="system:anonymous", groups=("system:unauthenticated",))
ADMINISTRATOR = User(name="kubernetes-admin", groups=(ADMINISTRATORS, AUTHENTICATED))
TURNED_AWAY: Final = "corral.dev/turned-away"
"""The audit log's note of whose certificate was refused, and why: its sender is not told."""

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Authenticator:
    """Finds the user of a request.

    ``tokens`` are secrets, each with its user; ``accounts`` knows those of ServiceAccounts;
    ``revocations`` tells which certificates are good no more; ``now`` is seconds since 1970.
    """

    tokens: Mapping[str, User] = field(default_factory=dict, repr=False)
    accounts: Accounts | None = None
    bootstrap_tokens: BootstrapTokens | None = None
    revocations: Revocations | None = None
    now: Callable[[], float] = time.time
    _by_digest: Mapping[bytes, User] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        digests = {_digest(token): user for token, user in self.tokens.items()}
        object.__setattr__(self, "_by_digest", digests)

    def over(
        self, store: Store, account_key: SigningKey | None, now: Callable[[], float]
    ) -> "Authenticator":
        """One that knows the ServiceAccounts and revocations of a store besides.

        ``account_key`` signs tokens; without one they are good for as long as this process runs.
        """
        accounts = Accounts(store, account_key, now=now)
        return replace(
            self,
            accounts=accounts,
            bootstrap_tokens=BootstrapTokens(store, now),
            revocations=Revocations(store),
            now=now,
        )

    def user(self, request: Request) -> User:
        """Whoever sends a request, also where they act for another.  Raises Unauthorized.

        They are known by the connection's certificate, else by a token; what is shown and not good
        is refused.  Whoever shows nothing is anonymous.
        """
        if request.user is not None:
            return request.user
        header = request.headers.get("authorization", "")
        if request.certificate is None and not header:
            return ANONYMOUS
        user = self._by_certificate(request.certificate) if request.certificate else None
        if user is None:
            user = self.by_token(_bearer(request))
        if user is None:
            if request.certificate is not None:
                request.annotations[TURNED_AWAY] = self._turned_away(request.certificate)
            raise Unauthorized("Unauthorized")
        return user

    def ends(self, request: Request) -> float | None:
        """When what a request shows is good no more, in seconds since 1970: at the latest.

        None where that never ends, and 0 where it is good no more already.
        """
        shown = request.headers.get("authorization") or request.certificate
        if request.user is not None or not shown:
            return None
        if request.certificate and self._by_certificate(request.certificate):
            return request.certificate.ends
        token = _bearer(request)
        if _digest(token) in self._by_digest:
            return None
        if self.bootstrap_tokens is not None and self.bootstrap_tokens.user(token):
            return self.bootstrap_tokens.ends(token)
        return (self.accounts.ends(token) if self.accounts is not None else None) or 0.0

    def _by_certificate(self, certificate: Certificate) -> User | None:
        return None if self._flaw(certificate) else _subject(certificate)

    def _flaw(self, certificate: Certificate) -> str:
        """Why a certificate lets nobody in; empty for one that does."""
        if not certificate.name:
            return "names nobody"
        if self.now() < certificate.begins:
            return f"is good from {rfc3339(certificate.begins)} on"
        if self.now() >= certificate.ends:
            return f"ended at {rfc3339(certificate.ends)}"
        if self.revocations is not None and self.revocations.covers(certificate):
            return "was revoked"
        return ""

    def _turned_away(self, certificate: Certificate) -> str:
        """Who is refused and why, which the log tells, too."""
        told = f'the certificate of "{certificate.name}" {self._flaw(certificate)}'
        _log_once(told, certificate.fingerprint)
        return told

    def by_token(self, token: str) -> User | None:
        """Whose token it is; None where it is nobody's, or not good any more."""
        # found by its digest, in a time that tells nothing about any token
        user = self._by_digest.get(_digest(token))
        if user is not None:
            return user
        if self.bootstrap_tokens is not None and (user := self.bootstrap_tokens.user(token)):
            return user
        return self.accounts.user(token) if self.accounts is not None else None

    def review(self, token: str, audiences: Sequence[str]) -> tuple[User, Sequence[str]] | None:
        """Whose token it is, and for which of some audiences; this server is meant without any."""
        wanted = audiences or (ISSUER,)
        claimed = self.accounts.audiences(token) if self.accounts is not None else None
        matched = [each for each in wanted if each in (claimed or (ISSUER,))]
        if not matched:
            return None
        if claimed is None or self.accounts is None:
            user = self.by_token(token)
        else:
            user = self.accounts.user(token, matched)
        return None if user is None else (user, matched)


def _bearer(request: Request) -> str:
    """The token that a request shows; empty where it shows none."""
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()


@lru_cache(maxsize=1024)
def _log_once(told: str, fingerprint: str) -> None:
    """Tell of a certificate when it is refused first: some programs try again for ever."""
    log.warning("a user was turned away", reason=told, fingerprint=fingerprint)


@lru_cache(maxsize=1024)
def _subject(certificate: Certificate) -> User:
    """The user of a certificate, as Kubernetes has it: its CN, in the groups that are its O."""
    return User(
        name=certificate.name,
        groups=(*dict.fromkeys((*certificate.groups, AUTHENTICATED)),),
        extra={CREDENTIAL: (f"X509SHA256={certificate.fingerprint}",)},
    )
