"""Access to stored images, by the credentials with which they were pulled.

As Kubernetes' KubeletEnsureSecretPulledImages (KEP 2535) with its default policy,
NeverVerifyPreloadedImages: images that were imported or pulled anonymously are there for all.
"""

import hashlib
from collections.abc import Iterable
from typing import Final

import msgspec

from corral.node.images.credentials import Credential, SecretName

MAX_SECRETS: Final = 100
"""Secrets that are kept for an image; for others the registry decides again."""


class PullSecret(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """A Secret with which the image was pulled, and a hash of its credentials."""

    namespace: str
    name: str
    uid: str
    hash: str


class Access(msgspec.Struct, rename="camel", frozen=True, kw_only=True, omit_defaults=True):
    """The callers that may use an image.

    everyone: it was imported, or pulled without a Secret.
    secrets: those with which it was pulled, oldest first.
    """

    everyone: bool = True
    secrets: tuple[PullSecret, ...] = ()

    @classmethod
    def by(cls, credential: Credential | None) -> "Access":
        """Return the access of a pull; credentials of the node grant it to everyone."""
        if credential is None or credential.secret is None:
            return cls()
        return cls(everyone=False, secrets=(_pull_secret(credential, credential.secret),))

    @classmethod
    def by_hash(cls, secret: str, credentials: Iterable[Credential]) -> "Access":
        """Return the access of the credential with that hash; everyone's for no hash."""
        if not secret:
            return cls()
        permitted = [each for each in credentials if credential_hash(each) == secret]
        return cls.by(permitted[0]) if permitted else cls(everyone=False)

    def allows(self, credentials: Iterable[Credential]) -> bool:
        """Report whether one of the credentials permits the image without asking the registry.

        Either the Secret is the same, even with changed content, or the credentials are the same,
        even in another Secret.
        """
        if self.everyone:
            return True
        hashes = self.hashes()
        names = {(each.namespace, each.name, each.uid) for each in self.secrets}
        return any(
            credential_hash(each) in hashes
            or (each.secret is not None and tuple(each.secret) in names)
            for each in credentials
        )

    def hashes(self) -> set[str]:
        """Return the hashes of the credentials with which it was pulled."""
        return {each.hash for each in self.secrets}

    def merge(self, other: "Access") -> "Access":
        """Return the union of two accesses."""
        if self.everyone or other.everyone:
            return Access()
        both = dict.fromkeys((*self.secrets, *other.secrets))
        return Access(everyone=False, secrets=tuple(both)[-MAX_SECRETS:])


def _pull_secret(credential: Credential, secret: SecretName) -> PullSecret:
    return PullSecret(
        namespace=secret.namespace,
        name=secret.name,
        uid=secret.uid,
        hash=credential_hash(credential),
    )


def credential_hash(credential: Credential) -> str:
    """Return a hash of the user name and the password."""
    content = msgspec.json.encode((credential.username, credential.password))
    return hashlib.sha256(content).hexdigest()
