"""Who may use an image that is here: those with whose credentials it came, as a kubelet keeps it.

That is Kubernetes' KubeletEnsureSecretPulledImages (KEP 2535) with its default policy,
NeverVerifyPreloadedImages: what was imported, or pulled by anybody, is there for all.
"""

import hashlib
from collections.abc import Iterable
from typing import Final

import msgspec

from corral.node.images.credentials import Credential, SecretName

MOST_SECRETS: Final = 100
"""So many secrets are remembered of an image; whoever comes with another one asks the registry."""


class Opener(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """A secret that has opened the registry: which it was, and a hash of what it said."""

    namespace: str
    name: str
    uid: str
    hash: str


class Access(msgspec.Struct, rename="camel", frozen=True, kw_only=True, omit_defaults=True):
    """Whom an image is there for.

    everyone: it was imported, or came without anybody's secret.
    secrets: those with which it came, oldest first.
    """

    everyone: bool = True
    secrets: tuple[Opener, ...] = ()

    @classmethod
    def by(cls, credential: Credential | None) -> "Access":
        """Of an image that came with a credential; one that is in no Secret is the node's own."""
        if credential is None or credential.secret is None:
            return cls()
        return cls(everyone=False, secrets=(_opener(credential, credential.secret),))

    def allows(self, credentials: Iterable[Credential]) -> bool:
        """Whether whoever has these need not ask the registry.

        A secret counts whatever it says by now, and what it said in whichever secret it stands.
        """
        if self.everyone:
            return True
        hashes = {each.hash for each in self.secrets}
        known = {(each.namespace, each.name, each.uid) for each in self.secrets}
        return any(
            _hash(each) in hashes or (each.secret is not None and tuple(each.secret) in known)
            for each in credentials
        )

    def joined(self, other: "Access") -> "Access":
        """Whom either is there for."""
        if self.everyone or other.everyone:
            return Access()
        both = dict.fromkeys((*self.secrets, *other.secrets))
        return Access(everyone=False, secrets=tuple(both)[-MOST_SECRETS:])


def _opener(credential: Credential, secret: SecretName) -> Opener:
    return Opener(
        namespace=secret.namespace, name=secret.name, uid=secret.uid, hash=_hash(credential)
    )


def _hash(credential: Credential) -> str:
    said = msgspec.json.encode((credential.username, credential.password))
    return hashlib.sha256(said).hexdigest()
