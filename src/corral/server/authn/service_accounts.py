"""ServiceAccounts as users: the tokens by which they are known (Kubernetes' bound tokens).

A token is good until its time is up, its ServiceAccount is gone, or the object is that it is bound
to.  Anybody can check the signature (``corral.server.authn.oidc_discovery``); who wants to know all
of that asks by a TokenReview.
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
"""Who signs tokens, and whom they are for unless they say otherwise (Kubernetes' default)."""
CREDENTIAL = "authentication.kubernetes.io/credential-id"
"""Extra of users who are known by a token: which one."""
PREFIX = "system:serviceaccount:"
GROUP = "system:serviceaccounts"
LONGEST_TOKEN = 8192
"""Characters; what is longer is nobody's."""
MOST_READ = 1024
"""Tokens whose claims are remembered: to check a signature takes longer than all else."""

BINDINGS = {"Pod": "pods", "Secret": "secrets", "Node": "nodes"}
"""The kinds of objects (core/v1) that a token may be bound to, and how they are stored."""


def flow_name(user: User) -> str:
    """As whom is counted what a user takes of the server: the accounts of a namespace are one.

    Who may make accounts would be any number of users otherwise, each with a share of their own.
    """
    namespace, colon, _ = user.name.removeprefix(PREFIX).partition(":")
    is_account = user.name.startswith(PREFIX) and colon
    return f"{GROUP}:{namespace}" if is_account else user.name


class Reference(msgspec.Struct, omit_defaults=True):
    """An object that a token speaks of."""

    name: str
    uid: str = ""


class Kubernetes(msgspec.Struct, omit_defaults=True):
    """Kubernetes' own claims: whose token it is, and what it is bound to."""

    namespace: str
    serviceaccount: Reference
    pod: Reference | None = None
    secret: Reference | None = None
    node: Reference | None = None


class Claims(msgspec.Struct, omit_defaults=True):
    """What a token says; times are in seconds since 1970."""

    aud: list[str]
    exp: int
    iat: int
    iss: str
    jti: str
    nbf: int
    sub: str
    kubernetes: Kubernetes = msgspec.field(name="kubernetes.io")


class Accounts:
    """The ServiceAccounts of a store.  ``key``: signs; without one, tokens end with the process."""

    def __init__(
        self, store: Store, key: SigningKey | None = None, *, now: Callable[[], float] = time.time
    ) -> None:
        self._store = store
        self.key = key or SigningKey()
        self._now = now
        self._read: dict[str, Claims] = {}

    def issue(
        self,
        account: Document,
        *,
        audiences: Sequence[str],
        seconds: int,
        bound: tuple[str, Document] | None = None,
    ) -> tuple[str, int]:
        """A new token of an account, bound to an object of a kind, and when its time is up."""
        metadata = account["metadata"]
        name, namespace = metadata["name"], metadata["namespace"]
        whose = Kubernetes(namespace=namespace, serviceaccount=Reference(name, metadata["uid"]))
        if bound is not None:
            kind, document = bound
            identity = Reference(document["metadata"]["name"], document["metadata"]["uid"])
            setattr(whose, kind.lower(), identity)
        now = int(self._now())
        claims = Claims(
            aud=list(audiences),
            exp=now + seconds,
            iat=now,
            iss=ISSUER,
            jti=random_uuid(),
            nbf=now,
            sub=user_name(namespace, name),
            kubernetes=whose,
        )
        return jwt.sign(claims, self.key), claims.exp

    def audiences(self, token: str) -> Sequence[str] | None:
        """Whom a token is for; None where it is none that was signed here."""
        claims = self._claims(token)
        return None if claims is None else claims.aud

    def ends(self, token: str) -> float | None:
        """When a token's time is up, in seconds since 1970; None where it is none of ours."""
        claims = self._claims(token)
        return None if claims is None else claims.exp

    def user(self, token: str, audiences: Sequence[str] = (ISSUER,)) -> User | None:
        """Whose token it is; None where it is not good, or is for others than any of these."""
        claims = self._claims(token)
        if claims is None or not self._is_good(claims) or not set(audiences) & set(claims.aud):
            return None
        whose = claims.kubernetes
        return User(
            name=user_name(whose.namespace, whose.serviceaccount.name),
            uid=whose.serviceaccount.uid,
            groups=(*user_groups(whose.namespace), "system:authenticated"),
            extra={CREDENTIAL: (f"JTI={claims.jti}",)},
        )

    def _claims(self, token: str) -> Claims | None:
        """What a token of ours says, whether or not it still counts."""
        claims = self._read.get(token)
        if claims is None and len(token) <= LONGEST_TOKEN and token.count(".") == 2:
            claims = jwt.claims_of(token, self.key, Claims)
            if claims is not None:
                if len(self._read) >= MOST_READ:
                    del self._read[next(iter(self._read))]
                self._read[token] = claims
        return claims

    def _is_good(self, claims: Claims) -> bool:
        whose = claims.kubernetes
        needed = [("serviceaccounts", whose.namespace, whose.serviceaccount)]
        for kind, plural in BINDINGS.items():
            if (bound := getattr(whose, kind.lower())) is not None:
                needed.append((plural, "" if kind == "Node" else whose.namespace, bound))
        return (
            claims.iss == ISSUER
            and claims.nbf <= self._now() < claims.exp
            and all(self._is_there(*one) for one in needed)
        )

    def _is_there(self, stored: str, namespace: str, reference: Reference) -> bool:
        record = self._store.latest(stored, Key(namespace, reference.name))
        return record is not None and record.document()["metadata"]["uid"] == reference.uid


def user_name(namespace: str, name: str) -> str:
    """What a ServiceAccount is called as a user."""
    return f"{PREFIX}{namespace}:{name}"


def user_groups(namespace: str) -> tuple[str, ...]:
    """The groups that the ServiceAccounts of a namespace are in, beside those of all users."""
    return GROUP, f"{GROUP}:{namespace}"
