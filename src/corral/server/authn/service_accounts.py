"""Tokens of ServiceAccounts (Kubernetes' bound tokens).

A token is valid until it expires, or its ServiceAccount or the object that it is bound to is
deleted.  Anybody can verify the signature (``corral.server.authn.oidc_discovery``); the rest is
checked by a TokenReview.
"""

import time
from collections.abc import Callable, Sequence

import msgspec

from corral.api.object import Document, Key
from corral.api.request import User
from corral.api.uid import random_uuid
from corral.pki import SigningKey
from corral.server.authn import jwt
from corral.store import Store

ISSUER = "https://kubernetes.default.svc.cluster.local"
"""Issuer and default audience of tokens (Kubernetes' default)."""
CREDENTIAL = "authentication.kubernetes.io/credential-id"
"""Extra of a user with the id of the credential."""
PREFIX = "system:serviceaccount:"
GROUP = "system:serviceaccounts"
MAX_TOKEN_CHARACTERS = 8192
"""Longer tokens are invalid."""
MAX_CACHED = 1024
"""Tokens whose claims are cached: verifying a signature takes longer than all else."""

BINDINGS = {"Pod": "pods", "Secret": "secrets", "Node": "nodes"}
"""Kinds (core/v1) of objects that a token may be bound to, and their plurals."""


def flow_name(user: User) -> str:
    """Return the name under which a user's requests count: accounts of a namespace share one.

    Otherwise a user who may create accounts would get any number of shares of the server.
    """
    namespace, colon, _ = user.name.removeprefix(PREFIX).partition(":")
    is_account = user.name.startswith(PREFIX) and colon
    return f"{GROUP}:{namespace}" if is_account else user.name


class Reference(msgspec.Struct, omit_defaults=True):
    """An object that a token refers to."""

    name: str
    uid: str = ""


class Kubernetes(msgspec.Struct, omit_defaults=True):
    """Kubernetes' private claims: the ServiceAccount, and the object that the token is bound to."""

    namespace: str
    serviceaccount: Reference
    pod: Reference | None = None
    secret: Reference | None = None
    node: Reference | None = None


class Claims(msgspec.Struct, omit_defaults=True):
    """The claims of a token; times are in seconds since 1970."""

    aud: list[str]
    exp: int
    iat: int
    iss: str
    jti: str
    nbf: int
    sub: str
    kubernetes: Kubernetes = msgspec.field(name="kubernetes.io")


class Accounts:
    """Tokens of the ServiceAccounts of a store.

    ``key`` signs them; without one, they are valid as long as this process runs.
    """

    def __init__(
        self, store: Store, key: SigningKey | None = None, *, now: Callable[[], float] = time.time
    ) -> None:
        self._store = store
        self.key = key or SigningKey()
        self._now = now
        self._cached: dict[str, Claims] = {}

    def issue(
        self,
        account: Document,
        *,
        audiences: Sequence[str],
        seconds: int,
        bound: tuple[str, Document] | None = None,
    ) -> tuple[str, int]:
        """Return a new token of an account, bound to an object if one is given, and its expiry."""
        metadata = account["metadata"]
        name, namespace = metadata["name"], metadata["namespace"]
        kubernetes = Kubernetes(
            namespace=namespace, serviceaccount=Reference(name, metadata["uid"])
        )
        if bound is not None:
            kind, document = bound
            identity = Reference(document["metadata"]["name"], document["metadata"]["uid"])
            setattr(kubernetes, kind.lower(), identity)
        now = int(self._now())
        claims = Claims(
            aud=list(audiences),
            exp=now + seconds,
            iat=now,
            iss=ISSUER,
            jti=random_uuid(),
            nbf=now,
            sub=user_name(namespace, name),
            kubernetes=kubernetes,
        )
        return jwt.sign(claims, self.key), claims.exp

    def audiences(self, token: str) -> Sequence[str] | None:
        """Return the audiences of a token; None if it was not signed here."""
        claims = self._claims(token)
        return None if claims is None else claims.aud

    def ends(self, token: str) -> float | None:
        """Return the expiry of a token in seconds since 1970; None if it was not signed here."""
        claims = self._claims(token)
        return None if claims is None else claims.exp

    def user(self, token: str, audiences: Sequence[str] = (ISSUER,)) -> User | None:
        """Return the user of a token; None if it is invalid or for none of these audiences."""
        claims = self._claims(token)
        if claims is None or not self._is_valid(claims) or not set(audiences) & set(claims.aud):
            return None
        kubernetes = claims.kubernetes
        return User(
            name=user_name(kubernetes.namespace, kubernetes.serviceaccount.name),
            uid=kubernetes.serviceaccount.uid,
            groups=(*user_groups(kubernetes.namespace), "system:authenticated"),
            extra={CREDENTIAL: (f"JTI={claims.jti}",)},
        )

    def _claims(self, token: str) -> Claims | None:
        """Return the claims of a token that was signed here, even if it is not valid any more."""
        claims = self._cached.get(token)
        if claims is None and len(token) <= MAX_TOKEN_CHARACTERS and token.count(".") == 2:
            claims = jwt.claims_of(token, self.key, Claims)
            if claims is not None:
                if len(self._cached) >= MAX_CACHED:
                    del self._cached[next(iter(self._cached))]
                self._cached[token] = claims
        return claims

    def _is_valid(self, claims: Claims) -> bool:
        kubernetes = claims.kubernetes
        required = [("serviceaccounts", kubernetes.namespace, kubernetes.serviceaccount)]
        for kind, plural in BINDINGS.items():
            if (bound := getattr(kubernetes, kind.lower())) is not None:
                required.append((plural, "" if kind == "Node" else kubernetes.namespace, bound))
        return (
            claims.iss == ISSUER
            and claims.nbf <= self._now() < claims.exp
            and all(self._is_there(*one) for one in required)
        )

    def _is_there(self, stored: str, namespace: str, reference: Reference) -> bool:
        record = self._store.latest(stored, Key(namespace, reference.name))
        return record is not None and record.document()["metadata"]["uid"] == reference.uid


def user_name(namespace: str, name: str) -> str:
    """Return the user name of a ServiceAccount."""
    return f"{PREFIX}{namespace}:{name}"


def user_groups(namespace: str) -> tuple[str, ...]:
    """Return the groups of a namespace's ServiceAccounts, without those of all users."""
    return GROUP, f"{GROUP}:{namespace}"
